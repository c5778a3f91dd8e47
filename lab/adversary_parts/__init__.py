"""The lies that `adversary.py` tells, and the run that nobody trained."""
