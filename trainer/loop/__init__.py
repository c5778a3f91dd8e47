"""The training loop (`loop`), a step (`step`), its optimizer, compiled programs and checkpoints."""
