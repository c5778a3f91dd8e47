"""JSON Schemas of a run's documents, and strict reading with clear problems.

Modules: `problems` (a problem and its rule), `formats` and `render` (how both are written), `catalog` (document kinds
and their schemas), `reading` (JSON, YAML and JSONL), `explain` (schema errors as problems), `validate` (a value or
a file against its schema).
"""
