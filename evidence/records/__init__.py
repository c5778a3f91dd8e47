"""Import runs of other tools."""
