"""What the pages compute, apart from how they draw it: no module here imports streamlit."""
