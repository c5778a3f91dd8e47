"""Time stamps of RFC 3161: requested of an authority, kept with a run, checked against a root certificate."""
