"""The model: one decoder for every family, its parameters, where they come from and where they go.

Read in this order: `spec` (what a model is), `decoder` (the forward pass, from `layers` and `attention`), `build`
(random parameters and shapes), `params` (names, hash), `families` (how Hugging Face files name things), `source` (a
name becomes a folder), `loading` and `export` (safetensors in and out), `generate` (greedy decoding). No loss and no
optimizer live here.
"""
