"""Numbers, grades and text from outside, as people read them."""
