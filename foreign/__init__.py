"""Run folders that trainproof did not write: one view of what they state, and what contradicts in it.

`evidence.records.foreign_run` reads a folder into a `readers.view.ForeignRun`; `checks.judgement` states what
contradicts and what the folder is worth. Nothing here writes, or turns into, the documents of a run that trainproof
carried out. A new reader needs a user who requests it.
"""
