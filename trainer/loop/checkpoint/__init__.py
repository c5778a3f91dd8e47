"""Checkpoints: `saving`, `restoring`, the names and hash of what is stored (`stored`), room on the `disk`."""
