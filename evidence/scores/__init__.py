"""From answers to scores: reading an answer, comparing it, means with intervals, and computing them again."""
