"""The training loop: one step (`step`), its optimizer (`optimizer`), the loop around it (`train`), checkpoints."""
