"""trainproof."""
