"""Job queue: jobs are folders on disk, and one small worker process runs them.

Runs do not depend on a browser, a terminal or the dashboard: worker and jobs are processes in sessions of their own,
and their output goes to files. `jobs` describes the files of a job, `queue` has the actions (start, stop, retry,
resume), `worker` is the worker process, `places` says where jobs run, and `tasks` runs plans, replays and prompts for
the dashboard. `process` has the calls that depend on the platform.
"""
