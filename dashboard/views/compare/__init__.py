"""Two or more runs."""
