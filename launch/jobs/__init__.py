"""What is on disk of a job, and its process: the ground that the queue, the worker and the places stand on."""
