"""Regular expressions of strangers, matched in bounded time.

The standard library's matcher can take longer than the universe on a short pattern, and nothing can interrupt it. A run
states the pattern that reads its answers, and anyone who checks the run applies it. So patterns are a subset of
Python's, with the same meaning, matched by following all ways at once.
"""
