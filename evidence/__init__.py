"""Write run folders durably, read them without trusting them, check and grade them.

Start with `layout.py` (files of a run), `writing.py` (how they are written), `run.py` (reading them into a `Run`),
`rules/` (what must agree), `grade.py` (problems and grade), `index/` (many runs) and `bundle/` (submissions).
"""
