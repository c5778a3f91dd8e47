"""How long a run takes: a step by the roofline of its device (`roofline`), a session and its parts (`session`)."""
