"""What a run folder states, as values: ours (`ours`), another tool's (`foreign_run`), both as `facts` for rules."""
