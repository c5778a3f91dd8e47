"""Record a run: its folder, manifest, code, machine, memory and failures."""
