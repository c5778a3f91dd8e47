"""One configuration planned for a device and for all of them."""
