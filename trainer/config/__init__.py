"""The configuration of a run: its tree of dataclasses (`tree`), and how one is loaded (`load`)."""
