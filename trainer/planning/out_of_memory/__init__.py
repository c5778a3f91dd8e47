"""What an out-of-memory text says: pasted from a TPU, a GPU, PyTorch or a host, as one `OutOfMemory`.

`read.py` tries the readers (`tpu`, `gpu`, `pytorch`, `host`); `roles.py` says what the named buffers are, `account.py`
what in a configuration they come from, `advice.py` what to change, cheapest first. Nothing here needs jax but
`account.py`, which is used only where a configuration is given.
"""
