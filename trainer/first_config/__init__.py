"""A first configuration for a model and rows that a user has: looked at, split, chosen, written with its reasons."""
