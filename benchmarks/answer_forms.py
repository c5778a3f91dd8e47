"""Error rates of the answer readers and of math-verify on tests/cases/answer_forms.jsonl.

Each verdict was decided by hand before any program read the forms. A false accept counts a wrong answer as correct, a
false reject a correct answer as wrong. math-verify needs an environment of its own; it reads numbers and formulas, with
a time limit of 5 seconds each. Choices are only read by trainproof. Writes benchmarks/results/answer_forms.json.

    python -m venv /tmp/judge && /tmp/judge/bin/pip install math-verify
    python benchmarks/answer_forms.py /tmp/judge/bin/python
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from harness import REPOSITORY, describe_machine, installed, part, read_printed, run_script, write_json

FORMS = REPOSITORY / "tests" / "cases" / "answer_forms.jsonl"
COMPARE = {"last_number": "numeric", "boxed": "numeric", "choice": "folded"}


def read_forms() -> list[dict[str, Any]]:
    """Return the forms: an answer, the expected one, and the verdict."""
    return [json.loads(line) for line in FORMS.read_text("utf-8").splitlines()]


def run_math_verify() -> None:
    """Print which numbers and formulas math-verify accepts; runs in its environment."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    kinds, forms = [LatexExtractionConfig(), ExprExtractionConfig()], read_forms()
    right = [
        bool(verify(parse(f"${form['expected']}$", kinds), parse(form["answer"], kinds)))
        for form in forms
        if form["reader"] != "choice"
    ]
    print(json.dumps({"right": right, "versions": installed("math-verify", "sympy")}))


def errors(forms: Sequence[dict[str, Any]], right: Sequence[bool]) -> dict[str, Any]:
    """Return the rates of false accepts and false rejects, with their counts and forms."""
    found: dict[str, Any] = {}
    for name, verdict in (("false_accept", "wrong"), ("false_reject", "right")):
        relevant = [(form, said) for form, said in zip(forms, right, strict=True) if form["verdict"] == verdict]
        odd = [f"{form['answer']} for {form['expected']}" for form, said in relevant if said != (verdict == "right")]
        found[name] = {"rate": round(len(odd) / len(relevant), 4), "n": len(odd), "of": len(relevant), "forms": odd}
    return found


def main() -> None:
    """Read every form with both readers, print and write."""
    from evidence.scores.reading import Scoring

    def is_right(form: dict[str, Any]) -> bool:
        scoring = Scoring(answer=form["reader"], compare=COMPARE[form["reader"]])
        return bool(scoring.verdict(form["answer"], "stop", [form["expected"]])["correct"])

    numbers, choices = (
        [one for one in read_forms() if (one["reader"] == "choice") == wanted] for wanted in (False, True)
    )
    began = time.process_time()
    ours = {name: errors(some, [*map(is_right, some)]) for name, some in (("numbers", numbers), ("choices", choices))}
    seconds = time.process_time() - began
    theirs = read_printed(part("math_verify", python=sys.argv[1]))
    machine = describe_machine("trainproof")
    machine["packages"] |= theirs["versions"]
    sides = {"ours": ours, "math_verify": {"numbers": errors(numbers, theirs["right"])}}
    for name, side in sides.items():
        print(name, {kind: f"{rates['n']} of {rates['of']}" for kind, rates in side["numbers"].items()})
    counts = {"numbers": len(numbers), "choices": len(choices)}
    speed = {"microseconds_a_form": round(1e6 * seconds / sum(counts.values()))}
    write_json("answer_forms.json", {"machine": machine, "forms": counts, **sides, "ours": ours | speed})


if __name__ == "__main__":
    run_script(main, math_verify=run_math_verify)
