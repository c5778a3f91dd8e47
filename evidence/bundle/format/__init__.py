"""What a bundle consists of: names, layout and documents of the zip, and the rules that it is held to."""
