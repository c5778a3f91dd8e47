"""THE WINDOW: five pages over a root of runs. It reads run folders and starts runs; it never imports the trainer.

Read in this order: `app.py` (navigation), `state.py` (root, URL), `views/` (one page a file: what is shown, in which
order), `components/` (how one thing is drawn), `logic/` (all that can be known without drawing; no streamlit there).
`serve.py` is behind the verb `trainproof dashboard`.
"""
