"""Compile the programs of a run for devices that are not here, and read their memory."""
