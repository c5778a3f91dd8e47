"""Parts of the accuracy of plans: programs that are compiled, each in a process of its own, and the picture."""
