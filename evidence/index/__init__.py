"""Many runs: reading, checking and summing up a folder of them, with caches between starts."""
