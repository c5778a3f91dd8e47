"""What `real_model.py` runs: rows, a student and a judge, the score, and a LoRA step in two ways."""
