"""The independent judge of RO-Crates, roc-validator, run offline: its HTTP cache is filled with the context beforehand.

Run as a program with the interpreter that has roc-validator, so that its dependencies and warnings stay out of the
tests: `python crate_judge.py CONTEXT FOLDER…` prints how many checks ran and what they found, as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

CONTEXT_URL = "https://w3id.org/ro/crate/1.1/context"
PROFILE = "process-run-crate"


def judge(folder: Path, context: Path) -> dict[str, Any]:
    """Return the verdict of each level, REQUIRED and RECOMMENDED, as number of checks and issues in words."""
    from rocrate_validator.models.settings import ValidationSettings
    from rocrate_validator.models.severity import Severity
    from rocrate_validator.services import validate

    with tempfile.TemporaryDirectory() as name:
        cache = Path(name) / "cache"
        fill(cache, context)
        verdict = {}
        for level in (Severity.REQUIRED, Severity.RECOMMENDED):
            settings = ValidationSettings(
                rocrate_uri=str(folder),
                profile_identifier=PROFILE,
                requirement_severity=level,
                offline=True,
                cache_path=cache,
            )
            result = validate(settings)
            verdict[level.name] = {
                "checks": len(result.executed_checks),
                "issues": sorted(f"{issue.check.identifier}: {issue.message}" for issue in result.get_issues()),
            }
        return verdict


def fill(cache: Path, context: Path) -> None:
    """Put the context under its address into an HTTP cache of the form that roc-validator reads."""
    from io import BytesIO

    from requests import PreparedRequest, Response
    from requests.adapters import BaseAdapter
    from requests_cache import CachedSession
    from urllib3 import HTTPResponse

    class FromDisk(BaseAdapter):
        def send(self, request: PreparedRequest, **_: Any) -> Response:
            response = Response()
            response.status_code, response.url, response.request = 200, CONTEXT_URL, request
            response.headers["Content-Type"] = "application/ld+json"
            response.raw = HTTPResponse(BytesIO(context.read_bytes()), status=200, preload_content=False)
            return response

        def close(self) -> None:
            pass

    with CachedSession(cache_name=str(cache), backend="sqlite", expire_after=-1) as session:
        session.mount("https://", FromDisk())
        session.get(CONTEXT_URL)


if __name__ == "__main__":
    json.dump([judge(Path(folder), Path(sys.argv[1])) for folder in sys.argv[2:]], sys.stdout)
