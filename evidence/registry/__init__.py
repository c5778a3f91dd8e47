"""Facts from outside a run folder that ship with the package: built-in data and models, and well-known public models."""
