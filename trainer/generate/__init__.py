"""Decoding: the tokens that a model continues a prompt with (`decode`), for runs and for scripts."""
