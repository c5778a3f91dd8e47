"""GGUF, the one-file format of llama.cpp: read as a model folder is, and written from trained parameters.

The file's header is read here, within bounds, because a stranger may have written it. What a block of a quantised
tensor means is the `gguf` package's matter, and so is how a file is laid out when one is written.
"""
