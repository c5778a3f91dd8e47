"""Before spending: which devices there are (`devices`), what a run needs (`estimate`), whether it may start (`plan`)."""
