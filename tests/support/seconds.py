"""A pytest plugin that measures every test: `--seconds FILE` writes the times as JSON.

`python tests/support/seconds.py fast/cold=FILE fast/warm=FILE slow/cold=FILE …` prints these documents as one, like
`benchmarks/results/test_seconds.json`. Cold means with an empty `XDG_CACHE_HOME`.

Processor seconds are those of the test's process and of the children it waited for, so they mean the same on a busy
machine; wall seconds do not.
"""

import json
import os
import platform
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

SLOWEST = 60
PACKAGES = ("jax", "pytest", "pytest-xdist", "streamlit")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seconds", type=Path, metavar="FILE", help="write how long the tests took")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Meter(), "trainproof-meter")
    # Workers measure, and the session that started them writes.
    if (path := config.getoption("--seconds")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Writer(path), "trainproof-seconds")


def processor_seconds() -> float:
    """Return the seconds of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


class Meter:
    """Adds `processor_seconds` to every report."""

    def __init__(self) -> None:
        self.since = 0.0

    def pytest_runtest_logstart(self) -> None:
        self.since = processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report: Any = yield
        now = processor_seconds()
        report.processor_seconds, self.since = now - self.since, now
        return report


class Writer:
    """Adds up the reports of all workers and writes the seconds of every test at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.began = time.perf_counter()
        self.spent: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.outcomes: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.spent[report.nodeid] += Counter(processor=report.processor_seconds, wall=report.duration)
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.outcome] += 1

    def pytest_sessionfinish(self) -> None:
        seconds = round(time.perf_counter() - self.began)
        document = {"outcomes": self.outcomes, "wall_seconds": seconds, "tests": self.spent}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(document, indent=1) + "\n")


def combined(documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Combine documents of `Writer`, by tier and state of the caches, such as `fast/cold`.

    Files and slowest tests are taken from the cold runs, since each test is in one tier.
    """
    tiers = {
        name: {
            "outcomes": document["outcomes"],
            "wall_seconds": document["wall_seconds"],
            "processor_seconds": round(sum(spent["processor"] for spent in document["tests"].values())),
        }
        for name, document in documents.items()
    }
    cold = [pair for name, each in documents.items() if name.endswith("/cold") for pair in each["tests"].items()]
    files: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, spent in cold:
        files[name.split("::")[0]].update(spent | {"tests": 1})
    return {
        "machine": {
            "os": f"{platform.system()} {platform.release()} {platform.machine()}",
            "cpu_count": os.cpu_count(),
            "python": platform.python_version(),
            "packages": {name: version(name) for name in PACKAGES},
        },
        "date": datetime.now(UTC).date().isoformat(),
        "tiers": tiers,
        "files": {name: _rounded(spent) for name, spent in sorted(files.items())},
        "slowest": {
            name: _rounded(spent) for name, spent in sorted(cold, key=lambda pair: -pair[1]["processor"])[:SLOWEST]
        },
    }


def _rounded(spent: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in sorted(spent.items())}


if __name__ == "__main__":
    given = (argument.split("=", 1) for argument in sys.argv[1:])
    found = combined({name: json.loads(Path(path).read_text()) for name, path in given})
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
