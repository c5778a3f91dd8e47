"""The contract: the shape of each document of a run, and the words for a document of another shape.

Reading order: `problems` (a problem, its rule, how both are written), `catalog` (which documents there are),
`row_fields` (the fields of metrics.jsonl), `explain` (a violation of a schema in plain words), `reading` (bytes to
JSON, YAML, rows and columns), `validate` (a value or a file against its schema). The schemas are in `documents/`.
"""
