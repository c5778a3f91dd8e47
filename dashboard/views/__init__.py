"""One folder a page. Streamlit runs each `view.py` as a script, so each ends by calling `page`."""
