"""Trying models by hand: a prompt or an item put to a run's model, the untrained one and another run's. No evidence."""
