"""What each code of the dashboard means (TP08x, a part of the family of usage), in the form of `schemas.rules`."""

from __future__ import annotations

from schemas.rules import Rule

EXPOSED = "TP080"
PORT_TAKEN = "TP081"

RULES = (
    Rule(
        code=EXPOSED,
        severity="error",
        title="listening to strangers without a login",
        meaning="The dashboard starts and stops processes; on another address than this machine's own, anyone could.",
        fix="Leave the address at 127.0.0.1 and use an SSH tunnel, or configure Streamlit's login.",
    ),
    Rule(
        code=PORT_TAKEN,
        severity="error",
        title="port in use",
        meaning="The dashboard cannot listen on the port that was asked for, or on any of those that it tries.",
        fix="Stop what listens there, or give another --port.",
    ),
)
