"""Pack runs, and verify a zip."""
