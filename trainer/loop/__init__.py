"""The training loop (`loop`), one step of it (`step`), its optimizer, compiled programs and checkpoints."""
