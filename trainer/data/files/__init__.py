"""Files of rows that may be larger than memory: each row is read on access."""
