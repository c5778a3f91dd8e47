"""Data: row files, what their columns mean, rows as text and as token ids, batches, and evaluation items."""
