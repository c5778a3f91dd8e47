"""Repeating a run that a user recorded, whole or in parts, and reporting where the repetition differs."""
