"""What a run folder states, as values: ours (`ours`), another tool's (`foreign_run`), and both as `facts` for the rules."""
