"""Who outside a run's folder has repeated or witnessed it: receipts, trusted keys, the grade `verified`."""
