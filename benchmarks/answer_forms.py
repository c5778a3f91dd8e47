"""Error rates of the answer readers and of math-verify on tests/cases/answer_forms.jsonl.

Each verdict was decided by hand before any program read the forms. A false accept counts a wrong answer as correct, a
false reject a correct answer as wrong. math-verify needs an environment of its own; it reads numbers and formulas, with
a time limit of 5 seconds each. Choices are only read by trainproof.

    python -m venv /tmp/judge && /tmp/judge/bin/pip install math-verify
    python benchmarks/answer_forms.py /tmp/judge/bin/python
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import RESULTS, describe_machine, write_json

from evidence.scores.reading import Scoring

REPOSITORY = Path(__file__).parents[1]
FORMS = REPOSITORY / "tests" / "cases" / "answer_forms.jsonl"
COMPARE = {"last_number": "numeric", "boxed": "numeric", "choice": "folded"}

MATH_VERIFY = """
import json, sys, importlib.metadata as metadata
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
kinds = [LatexExtractionConfig(), ExprExtractionConfig()]
forms = json.load(sys.stdin)
right = [bool(verify(parse(f"${one['expected']}$", kinds), parse(one["answer"], kinds))) for one in forms]
print(json.dumps({"right": right, "versions": {n: metadata.version(n) for n in ("math-verify", "sympy")}}))
"""


def is_right(form: dict[str, Any]) -> bool:
    """Return whether our reader accepts an answer."""
    scoring = Scoring(answer=form["reader"], compare=COMPARE[form["reader"]])
    return bool(scoring.verdict(form["answer"], "stop", [form["expected"]])["correct"])


def errors(forms: Sequence[dict[str, Any]], right: Sequence[bool]) -> dict[str, Any]:
    """Return the rates of false accepts and false rejects, with their counts and forms."""
    found: dict[str, Any] = {}
    for name, verdict in (("false_accept", "wrong"), ("false_reject", "right")):
        relevant = [(form, said) for form, said in zip(forms, right, strict=True) if form["verdict"] == verdict]
        odd = [f"{form['answer']} for {form['expected']}" for form, said in relevant if said != (verdict == "right")]
        found[name] = {"rate": round(len(odd) / len(relevant), 4), "n": len(odd), "of": len(relevant), "forms": odd}
    return found


def main(judge: str) -> None:
    """Read every form with both readers, print and write."""
    forms = [json.loads(line) for line in FORMS.read_text("utf-8").splitlines()]
    numbers = [form for form in forms if form["reader"] != "choice"]
    choices = [form for form in forms if form["reader"] == "choice"]
    began = time.process_time()
    ours = {
        name: errors(some, list(map(is_right, some))) for name, some in (("numbers", numbers), ("choices", choices))
    }
    seconds = time.process_time() - began
    command = [judge, "-c", MATH_VERIFY]
    done = subprocess.run(command, input=json.dumps(numbers), capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    machine = describe_machine("trainproof")
    machine["packages"] |= theirs["versions"]
    result = {
        "machine": machine,
        "forms": {"numbers": len(numbers), "choices": len(choices)},
        "ours": ours | {"microseconds_a_form": round(1e6 * seconds / len(forms))},
        "math_verify": {"numbers": errors(numbers, theirs["right"])},
    }
    write_json(RESULTS / "answer_forms.json", result)
    for name, of in (("ours", ours), ("math-verify", result["math_verify"])):
        rates = {
            kind: f"{of['numbers'][kind]['n']} of {of['numbers'][kind]['of']}"
            for kind in ("false_accept", "false_reject")
        }
        print(name, rates)


if __name__ == "__main__":
    main(sys.argv[1])
