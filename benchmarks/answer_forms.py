"""Error rates of the answer readers and of math-verify on tests/cases/answer_forms.jsonl.

    python benchmarks/answer_forms.py

Each verdict was decided by hand before any program read the forms. A false accept counts a wrong answer as correct, a
false reject a correct answer as wrong. math-verify reads numbers and formulas, in an environment of its own; choices
are only read by trainproof. Writes benchmarks/results/answer_forms.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from harness import REPOSITORY, installed, part, read_printed, run_script, write_json

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
    from trainer.recorder.environment import environment

    def is_right(form: dict[str, Any]) -> bool:
        scoring = Scoring(answer=form["reader"], compare=COMPARE[form["reader"]])
        return bool(scoring.verdict(form["answer"], "stop", [form["expected"]])["correct"])

    forms: dict[str, list[dict[str, Any]]] = {"numbers": [], "choices": []}
    for form in read_forms():
        forms["choices" if form["reader"] == "choice" else "numbers"].append(form)
    ours = {name: errors(some, [*map(is_right, some)]) for name, some in forms.items()}
    theirs = read_printed(part("math_verify", packages=["math-verify[antlr4_13_2]"]))
    sides = {"ours": ours, "math_verify": {"numbers": errors(forms["numbers"], theirs["right"])}}
    for name, side in sides.items():
        print(name, {kind: f"{rates['n']} of {rates['of']}" for kind, rates in side["numbers"].items()})
    write_json(
        "answer_forms.json",
        {
            "machine": environment(),
            "peer": theirs["versions"],
            "forms": {name: len(forms[name]) for name in forms},
            **sides,
        },
    )


if __name__ == "__main__":
    run_script(main, math_verify=run_math_verify)
