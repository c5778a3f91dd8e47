"""What is written down: the run folder (`recorder`), the code (`code`), the machine (`environment`), and what really
ran, read back from the compiled program (`effective`).
"""
