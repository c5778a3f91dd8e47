"""A pytest plugin that keeps how long every test took: `--seconds FILE` writes it as JSON.

`python tests/support/seconds.py fast/cold=FILE fast/warm=FILE slow/cold=FILE …` prints these documents as one, as
`benchmarks/results/test_seconds.json` has it. Cold is with an empty `XDG_CACHE_HOME`.

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
    """Adds up the reports of all workers and writes the document at the end."""

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
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self._document(), indent=1) + "\n")

    def _document(self) -> dict[str, Any]:
        files: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for name, spent in self.spent.items():
            files[name.split("::")[0]] += spent + Counter(tests=1)
        slowest = sorted(self.spent.items(), key=lambda pair: -pair[1]["processor"])[:SLOWEST]
        return {
            "machine": {
                "os": f"{platform.system()} {platform.release()} {platform.machine()}",
                "cpu_count": os.cpu_count(),
                "python": platform.python_version(),
                "packages": {name: version(name) for name in PACKAGES},
            },
            "date": datetime.now(UTC).date().isoformat(),
            "outcomes": dict(self.outcomes),
            "wall_seconds": round(time.perf_counter() - self.began),
            "processor_seconds": round(sum(spent["processor"] for spent in self.spent.values())),
            "files": {name: _rounded(spent) for name, spent in sorted(files.items())},
            "slowest": {name: _rounded(spent) for name, spent in slowest},
        }


def _rounded(spent: Counter[str]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in sorted(spent.items())}


def combined(documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return one document of several.

    Args:
        documents: what `Writer` wrote, by tier and state of the caches, such as `fast/cold`.

    Returns:
        The sums of each; files and slowest tests of the cold ones, since each test is in one tier.
    """
    sums = ("outcomes", "wall_seconds", "processor_seconds")
    cold = [document for name, document in documents.items() if name.endswith("/cold")]
    files: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for document in cold:
        for name, spent in document["files"].items():
            files[name].update(spent)
    slowest = sorted((pair for one in cold for pair in one["slowest"].items()), key=lambda pair: -pair[1]["processor"])
    first = next(iter(documents.values()))
    return {
        "machine": first["machine"],
        "date": first["date"],
        "tiers": {name: {key: document[key] for key in sums} for name, document in documents.items()},
        "files": {name: _rounded(spent) for name, spent in sorted(files.items())},
        "slowest": dict(slowest[:SLOWEST]),
    }


if __name__ == "__main__":
    given = (argument.split("=", 1) for argument in sys.argv[1:])
    sys.stdout.write(
        json.dumps(combined({name: json.loads(Path(path).read_text()) for name, path in given}), indent=1) + "\n"
    )
