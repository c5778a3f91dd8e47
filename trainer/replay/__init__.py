"""Repeating a run that somebody recorded, whole or in parts, and saying where the repetition differs."""
