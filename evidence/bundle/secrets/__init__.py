"""Secrets in files: what they look like, finding them, and masking them in copies and on pages."""
