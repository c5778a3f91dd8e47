"""Reading a zip that may be hostile, and writing one that has the same bytes for the same content."""
