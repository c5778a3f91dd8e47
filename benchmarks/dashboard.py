"""How long a reader waits: the dashboard beside TensorBoard, MLflow and the least that Streamlit can do, in one run.

    python benchmarks/dashboard.py --corpus FOLDER --runs 200 2000 10000 --peers PYTHON

Every figure is the seconds from an act until its result is on the page of a headless Chromium, the middle of `--repeat`
rounds; in each round every tool is measured once, so that all of them meet the same noise; a reload, of the bare page
and of ours, is the middle of five. `PYTHON` is an interpreter with tensorboard and mlflow installed; without it they
are left out. The corpus is written where it is not there yet and takes about 2.5 GB. Writes
benchmarks/results/dashboard.json and dashboard.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median

from dashboard_parts.browse import FLAGS, chromium
from dashboard_parts.our_runs import write_long, write_ours
from dashboard_parts.plot import write_plot
from dashboard_parts.tools import Figures, floor, mlflow, ours, tensorboard
from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).parent
RESULT = HERE / "results" / "dashboard.json"

Rounds = dict[str, list[float]]


def main() -> None:
    """Write what is missing of the corpus, measure, print, keep."""
    asked = _arguments()
    asked.corpus.mkdir(parents=True, exist_ok=True)
    for runs in asked.runs:
        _corpus(asked.corpus, runs, asked.peers)
    measured: dict[str, Rounds] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        for _ in range(asked.repeat):
            for name, figures in _round(browser, asked):
                _add(measured.setdefault(name, {}), figures)
        about = _about(browser, asked)
        browser.close()
    for runs in asked.runs:
        for _ in range(asked.repeat):
            _add(measured[f"trainproof_{runs}"], _index(asked.corpus / "ours" / str(runs)))
    result = {"about": about, "seconds": {name: _middle(rounds) for name, rounds in measured.items()}}
    RESULT.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    write_plot(result["seconds"], RESULT.with_suffix(".svg"))
    _print(result["seconds"])


def _round(browser: Browser, asked: argparse.Namespace) -> list[tuple[str, Figures]]:
    """Measure every tool once."""
    found = [("floor", floor(browser))]
    for runs in asked.runs:
        print(f"{time.strftime('%H:%M:%S')} {runs} runs", file=sys.stderr, flush=True)
        found.append((f"trainproof_{runs}", ours(browser, asked.corpus / "ours" / str(runs))))
        if asked.peers and (asked.corpus / "tensorboard" / str(runs)).is_dir():
            logs, base = asked.corpus / "tensorboard" / str(runs), asked.corpus / "mlflow" / str(runs)
            found.append((f"tensorboard_{runs}", tensorboard(browser, asked.peers, logs)))
            found.append((f"mlflow_{runs}", mlflow(browser, asked.peers, base)))
    return found


def _index(root: Path) -> Figures:
    """Return the seconds of a first index, of one after a run changed, of one more, and of the next process's first.

    The first is also measured where the disk has to be asked for every file, beside the time of reading them alone.
    """
    code = (
        "import sys, time; from pathlib import Path; from evidence.index.runs import RunIndex\n"
        "root, cache = map(Path, sys.argv[1:]); index = RunIndex(root, entries_in=cache)\n"
        "def took():\n    began = time.perf_counter(); index.refresh(); return time.perf_counter() - began\n"
        "first = took(); (root / 'run-00007' / 'config.yaml').touch(); print(first, took(), took())"
    )

    def asked(cache: str) -> list[float]:
        said = subprocess.check_output([sys.executable, "-c", code, str(root), cache], text=True)
        return [float(seconds) for seconds in said.split()]

    files = [path for path in root.glob("*/*") if path.is_file()]
    _out_of_memory(files)
    began = time.perf_counter()
    for path in files:
        path.read_bytes()
    read = time.perf_counter() - began
    _out_of_memory(files)
    with tempfile.TemporaryDirectory() as cache:
        from_disk = asked(cache)[0]
    with tempfile.TemporaryDirectory() as cache:
        first, changed, again = asked(cache)
        restarted = asked(cache)[0]
    return {
        "files_read_from_disk": read,
        "index_from_disk": from_disk,
        "index_first": first,
        "index_one_changed": changed,
        "index_unchanged": again,
        "index_restarted": restarted,
    }


def _out_of_memory(files: Sequence[Path]) -> None:
    """Have the system forget what it holds of files, so that the disk is asked for them."""
    os.sync()  # What is not written yet is not forgotten.
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _corpus(corpus: Path, runs: int, peers: Path | None) -> None:
    """Write what is not there yet; the peers get no more than 2,000 runs."""
    root = corpus / "ours" / str(runs)
    if not root.is_dir():
        write_ours(root, runs)
        write_long(root)
    for tool in ("tensorboard", "mlflow") if peers and runs <= 2000 else ():
        if not (folder := corpus / tool / str(runs)).is_dir():
            subprocess.run([peers, HERE / "dashboard_parts" / "corpus.py", tool, folder, str(runs)], check=True)


def _about(browser: Browser, asked: argparse.Namespace) -> dict[str, object]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    versions = {name: version(name) for name in ("trainproof", "streamlit", "pandas", "numpy")}
    versions |= {"python": platform.python_version(), "chromium": browser.version}
    if asked.peers:
        code = "from importlib.metadata import version as v; print(v('tensorboard'), v('mlflow'))"
        told = subprocess.run([asked.peers, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        versions |= dict(zip(("tensorboard", "mlflow"), told, strict=True))
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processors": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "load_before": round(os.getloadavg()[0], 1),
        "repeat": asked.repeat,
        "versions": versions,
    }


def _add(rounds: Rounds, figures: Figures) -> None:
    for name, value in figures.items():
        rounds.setdefault(name, []).append(value)


def _middle(rounds: Rounds) -> dict[str, dict[str, float]]:
    return {
        name: {"median": round(median(values), 3), "min": round(min(values), 3), "max": round(max(values), 3)}
        for name, values in rounds.items()
    }


def _print(seconds: dict[str, dict[str, dict[str, float]]]) -> None:
    names = list(dict.fromkeys(name for figures in seconds.values() for name in figures))
    width = max(map(len, names)) + 2
    for tool, figures in seconds.items():
        print(f"\n{tool}")
        for name in names:
            if name in figures:
                one = figures[name]
                print(f"  {name:<{width}}{one['median']:>9.2f}   ({one['min']:.2f} to {one['max']:.2f})")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--runs", type=int, nargs="+", default=[200, 2000])
    parser.add_argument("--peers", type=Path, help="a Python with tensorboard and mlflow")
    parser.add_argument("--repeat", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
