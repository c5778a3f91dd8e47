"""Runs started from the page: a queue of folders on disk, and one small process that works through it.

Nothing hangs on a browser or on the dashboard: the queue is files, the worker and each run have sessions of their own,
output goes to a file. Read `folder.py` (what is on disk), `process.py` (a process that is surely the one meant),
`worker.py` (works through the queue), `control.py` (what the buttons do), `program.py` and `seal.py` (what is started,
and for whom: a root may come from somebody else).
"""
