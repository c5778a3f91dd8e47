"""Worker process of `evidence.index.index.iter_entries`."""

from evidence.index.index import worker_main

worker_main()
