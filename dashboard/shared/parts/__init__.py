"""How one thing is drawn, on whichever page it stands. What it says was computed in `dashboard.shared`."""
