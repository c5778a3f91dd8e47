"""Out-of-memory texts of TPUs, JAX, CUDA, PyTorch and of a machine whose main memory was full.

`read.py` tries the readers; `roles.py` names the buffers, `account.py` compares the failure with a configuration,
`advice.py` lists what to change, cheapest first. Nothing here needs jax but `account.py`.
"""
