"""The model: one decoder for every family, its parameters, and the files they are read from and written to.

Reading order: `spec` (architecture), `families` (config.json to spec, tensor names), `decoder` (forward pass, from
`layers`, `attention` and `stacks`), `source` (model name to files), `load` and `export` (safetensors, GGUF), `peft`
(adapters), `model` (what a configuration trains). Losses, optimizers and decoding are in other packages.
"""
