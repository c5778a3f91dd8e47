"""What is written down: the folder (`recorder`), the code, the machine, the first manifest, what ran (`effective`)."""
