"""Runs as rows, columns and figures."""
