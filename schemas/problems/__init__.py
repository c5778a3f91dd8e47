"""A problem, the rule behind it, and how problems, values and figures are written."""
