"""What every test runs under: a CPU, eight virtual devices, no hub, and no colour or width from the terminal."""

import os

# Set before anything imports jax, which reads them once.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["COLUMNS"] = "200"
os.environ.pop("FORCE_COLOR", None)
