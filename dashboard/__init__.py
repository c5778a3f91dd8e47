"""The window: six pages over a folder of runs. It reads what `evidence` reads, and starts runs through `launch`.

`app.py` is the entry point. `views/` has a folder a page: `view.py` (what is shown, in which order), `parts/` (how it
is drawn), `logic/` (what can be known without drawing; no streamlit there). `shared/` is what several pages need.
The folder is not called `pages`: beside the entry point Streamlit takes one of that name for its older kind of pages,
and answers the first link into the dashboard with "Page not found".
"""
