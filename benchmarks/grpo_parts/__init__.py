"""The loops that `benchmarks/grpo.py` compares."""
