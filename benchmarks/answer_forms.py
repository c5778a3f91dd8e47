"""How often the reader of answers is wrong, beside math-verify: every form of tests/cases/answer_forms.jsonl.

A careful reader wrote each verdict down before anything was read by a program. A false accept counts a wrong answer as
right, a false reject a right one as wrong. math-verify is installed in an environment of its own, never beside
trainproof; it reads numbers and formulas, and choices are ours alone. It decides with a limit of 5 seconds each.

    python -m venv /tmp/judge && /tmp/judge/bin/pip install math-verify
    python benchmarks/answer_forms.py /tmp/judge/bin/python
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evidence.scores.reading import Scoring

REPOSITORY = Path(__file__).parents[1]
FORMS = REPOSITORY / "tests" / "cases" / "answer_forms.jsonl"
RESULT = REPOSITORY / "benchmarks" / "results" / "answer_forms.json"
COMPARE = {"last_number": "numeric", "boxed": "numeric", "choice": "folded"}

OF_MATH_VERIFY = """
import json, sys, importlib.metadata as metadata
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
kinds = [LatexExtractionConfig(), ExprExtractionConfig()]
forms = json.load(sys.stdin)
right = [bool(verify(parse(f"${one['expected']}$", kinds), parse(one["answer"], kinds))) for one in forms]
print(json.dumps({"right": right, "versions": {n: metadata.version(n) for n in ("math-verify", "sympy")}}))
"""


def is_right(form: dict[str, Any]) -> bool:
    """Return whether our reader takes an answer for the expected one."""
    scoring = Scoring(answer=form["reader"], compare=COMPARE[form["reader"]])
    return bool(scoring.verdict(form["answer"], "stop", [form["expected"]])["correct"])


def errors(forms: Sequence[dict[str, Any]], right: Sequence[bool]) -> dict[str, Any]:
    """Return both error rates of a reader, each with its counts and the forms that it reads wrongly."""
    found: dict[str, Any] = {}
    for name, verdict in (("false_accept", "wrong"), ("false_reject", "right")):
        of = [(form, said) for form, said in zip(forms, right, strict=True) if form["verdict"] == verdict]
        odd = [f"{form['answer']} for {form['expected']}" for form, said in of if said != (verdict == "right")]
        found[name] = {"rate": round(len(odd) / len(of), 4), "n": len(odd), "of": len(of), "forms": odd}
    return found


def main(judge: str) -> None:
    """Read every form with both, and write the result."""
    forms = [json.loads(line) for line in FORMS.read_text("utf-8").splitlines()]
    numbers = [form for form in forms if form["reader"] != "choice"]
    choices = [form for form in forms if form["reader"] == "choice"]
    began = time.process_time()
    ours = {
        name: errors(some, list(map(is_right, some))) for name, some in (("numbers", numbers), ("choices", choices))
    }
    seconds = time.process_time() - began
    asked = json.dumps(numbers)
    said = subprocess.run([judge, "-c", OF_MATH_VERIFY], input=asked, capture_output=True, text=True, check=True)
    theirs = json.loads(said.stdout)
    machine = {
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "cpu_count": os.cpu_count(),
        "packages": {"trainproof": version("trainproof")} | theirs["versions"],
    }
    result = {
        "machine": machine,
        "forms": {"numbers": len(numbers), "choices": len(choices)},
        "ours": ours | {"microseconds_a_form": round(1e6 * seconds / len(forms))},
        "math_verify": {"numbers": errors(numbers, theirs["right"])},
    }
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for name, of in (("ours", ours), ("math-verify", result["math_verify"])):
        rates = {
            kind: f"{of['numbers'][kind]['n']} of {of['numbers'][kind]['of']}"
            for kind in ("false_accept", "false_reject")
        }
        print(name, rates)


if __name__ == "__main__":
    main(sys.argv[1])
