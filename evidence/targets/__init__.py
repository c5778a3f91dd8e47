"""Machines that a run can be planned for and judged by: one table of figures, each with unit, source and date."""
