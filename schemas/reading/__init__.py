"""Bytes to values: text, JSON, YAML, rows and columns, each with a strict reader and a fast one for the usual case."""
