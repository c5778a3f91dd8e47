"""The dashboard: six Streamlit pages over a folder of runs.

`app.py` is the entry point, `views/` has the pages, and `shared/` what they share. The folder of pages is not called
`pages`, because Streamlit registers every file in a folder of that name beside the entry point.
"""
