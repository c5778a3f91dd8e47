"""Output of a terminal that was kept: its lines, logged tables, and what it notes of the run."""
