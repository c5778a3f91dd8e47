"""Configure, plan and start a run; the queue."""
