"""What the verbs print: one file for each kind of result, as lines of text."""
