"""Read, check and summarize folders of many runs, with a cache between starts."""
