"""What several pages need: drawn in `parts`, kept in `session`, computed in the others without streamlit."""
