"""A first configuration for a model and rows that somebody has: looked at, split, chosen, written with its reasons."""
