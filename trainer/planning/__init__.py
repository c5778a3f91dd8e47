"""Plan a run before it starts: memory, time, and what to change; explain out-of-memory errors."""
