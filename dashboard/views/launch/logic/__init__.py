"""What this page computes, without Streamlit."""
