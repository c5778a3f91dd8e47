"""How one thing is drawn, on whichever page."""
