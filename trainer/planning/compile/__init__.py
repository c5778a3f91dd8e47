"""What the real compiler says of a program for a device that is not here, before any machine code is made."""
