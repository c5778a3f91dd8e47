"""What contradicts in a view of another tool's folder, and what the folder is worth."""
