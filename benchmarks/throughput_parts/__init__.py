"""Loops that train the same small model, each run by the Python of its own environment; `throughput.py` pairs them.

They share shapes, data and one protocol (`serving.py`) and nothing else: no two need the same packages.
"""
