"""What is kept between two drawings of a page: the address, and everything that was read."""
