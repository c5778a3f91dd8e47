"""Rules: what must agree in a run folder. Each is registered with `@rule`; `catalog.check` runs them all."""
