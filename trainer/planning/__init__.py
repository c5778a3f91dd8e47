"""Before spending: which devices there are (`devices`), what a run needs (`estimate`), may it start (`plan`)."""
