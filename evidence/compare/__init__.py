"""How runs differ: settings, scores with their intervals, and what a smoke run rehearsed of a full one."""
