"""The measurements of `on_gpu.py`: this trainer's, and torch's."""
