"""Import runs of other tools: read their files, compare what they state, and keep the originals with their hashes."""
