"""How the server starts: what it does not wait for."""

from __future__ import annotations

import subprocess
import sys


def test_plotly_is_held_back_while_the_server_is_loaded_and_there_afterwards() -> None:
    code = (
        "import sys\n"
        "from dashboard.serve import held_back\n"
        "with held_back('plotly'):\n"
        "    import streamlit.web.cli\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'plotly']\n"
        "import plotly.graph_objects, streamlit\n"
        "with held_back('plotly'):\n"
        "    assert sys.modules['plotly'] is plotly\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
