"""What operating systems do differently stands in one file, so that judging works where POSIX is missing."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]


def test_one_file_of_the_package_asks_which_system_it_runs_on():
    names = r"sys\.platform|os\.name\b|\bfcntl\b|\bmsvcrt\b|O_NOFOLLOW|O_NONBLOCK|os\.(getuid|fork|killpg|nice|pread)\b"
    asks = [path for path in (REPOSITORY / "evidence").rglob("*.py") if re.search(names, path.read_text("utf-8"))]
    assert [path.relative_to(REPOSITORY).as_posix() for path in asks] == ["evidence/run/platform.py"]
