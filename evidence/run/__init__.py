"""The run folder as files: names, hashes, locks, durable writing, notes and the chain."""
