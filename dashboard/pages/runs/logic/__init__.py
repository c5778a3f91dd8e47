"""logic."""
