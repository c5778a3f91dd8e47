"""What a run folder states, as values: ours (`ours`), another tool's (`theirs`), and both as `facts` for the rules."""
