"""From the findings of a run to its grade, and the report of many runs in five formats."""
