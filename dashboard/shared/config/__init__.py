"""Configurations: their settings, and where they come from."""
