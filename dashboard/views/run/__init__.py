"""One run."""
