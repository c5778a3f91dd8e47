"""How runs differ: settings, scores with their intervals, and what a smoke run shows about a full one."""
