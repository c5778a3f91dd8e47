"""The dashboard: six Streamlit pages over a folder of runs.

`app.py` is the entry point, `views/` contains the pages, and `shared/` their common parts. The folder of pages is not
called `pages`, because Streamlit registers every file in a folder of that name next to the entry point.
"""
