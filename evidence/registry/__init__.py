"""Facts from outside a run folder, which ship with the package: built-in data and models, well-known public models."""
