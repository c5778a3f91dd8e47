"""Files of LoRA adapters as PEFT writes them, in both directions, and merging them into a model."""
