"""Measuring a model: answering an evaluation set and writing down every answer (`evaluate`)."""
