"""What this page computes, without streamlit."""
