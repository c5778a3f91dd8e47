"""Growing files, read on from where the last reading stopped."""
