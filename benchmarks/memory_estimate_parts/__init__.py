"""The cases of `memory_estimate.py`."""
