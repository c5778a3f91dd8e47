"""Where runs are carried out. Every place is a module with the functions of `place.Place`; `local` is this machine."""
