"""What a run folder states, as values (`ours`), and as `facts` for rules."""
