"""The hands: a queue of runs as folders on disk, and one small process that works through it.

No run depends on a browser, a terminal or the dashboard: the queue is files, the worker and each run have sessions of
their own, and output goes to a file. Read `jobs/folder.py` (what is on disk), `queue.py` (what can be done with
it), `places/` (where runs run), `worker.py`, and in `jobs/` process and program (what is started). A root may come from
another user: `evidence.hashes.verify_seal` shows who queued a job.
"""
