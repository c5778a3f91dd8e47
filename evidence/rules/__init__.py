"""Rules that a run folder must follow. Each is registered with `@rule`; `checker.check` runs them all."""
