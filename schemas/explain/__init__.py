"""What is wrong with a value by its schema, where, and what to do: one `Problem` for each broken rule."""
