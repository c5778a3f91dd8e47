"""The configuration: its form, its sources, and what became of each key."""
