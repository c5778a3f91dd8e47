"""The contract: what every document of a run looks like, and what is said when one does not look so.

Reading order: `problems` (what was found), `render` (how it is said), `catalog` (which documents there are), `parse`
(bytes to a value), `validate` (a value or a file against its schema), `rows` (the same for long JSONL files), `explain`
(a violation of a schema in plain words), `rules` (every code with its meaning). The schemas are in `documents/`.

What does not live here: anything that looks at two documents together. That is `evidence`.
"""
