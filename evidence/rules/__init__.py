"""What must agree in a run folder: one function for each thing, one file for each family.

A rule is a pure function from `Facts` to problems, and a `Rule` that states what its code means and how to fix it.
`catalog` lists all of them. This file stays empty, because reading a folder needs the rules of `reading` before there
are any facts.
"""
