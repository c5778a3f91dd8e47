"""One page a file: what is shown, in which order. Streamlit runs each as a script, so each ends by calling `page`."""
