"""Names of the files through which a compiling process answers an order; each is whole as soon as it is there."""

OUTPUT = "output.txt"
"""What was printed, by the compiler or on its way there."""
ANSWER = "answer.json"
"""What came of the order: JAX's own figures, a refusal, or a failure."""
ENDED = "ended.json"
"""How the order's process ended; it writes nothing any more."""
