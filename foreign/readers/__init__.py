"""A reader for each kind of file that other tools leave, and the view that they fill."""
