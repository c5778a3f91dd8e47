"""A stand-in for the compiler: the program's name, run as Python in the compiling process."""

import os
import signal
from typing import Any

from jax.errors import JaxRuntimeError


def run_code(code: str, *arguments: Any) -> None:
    """Run `code` with the function that sends the answer as `send`."""
    exec(code, {"os": os, "signal": signal, "send": arguments[-1], "JaxRuntimeError": JaxRuntimeError})
