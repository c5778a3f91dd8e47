"""Run folders that trainproof did not write, read into one view: what they state, where, and what was inferred.

`read.read_foreign` gives a `view.ForeignRun`; `judgement` says what contradicts and what the folder is worth;
`importing` keeps a folder's files under `original/` with an `import.json` beside them. Nothing here writes, or turns
into, the documents of a run that trainproof carried out.
"""
