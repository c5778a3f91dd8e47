"""The verbs of the command, one file each: flags, words, exit code. Heavy imports stand inside the functions."""
