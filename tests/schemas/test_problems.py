"""Problems, their texts, and each way of formatting them; SARIF is also compared with its specification."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import formats
from schemas.formats import join_lines, visible
from schemas.problems import (
    Problem,
    ProblemError,
    all_rules,
    collect_problems,
    pointer_to,
    problem_of,
    truncate_problems,
)
from schemas.render import render_github, render_sarif, render_sentence, render_text

BROKEN = Path(__file__).parents[1] / "cases" / "documents" / "broken"


def problem(severity, what):
    return Problem(code="TP101", severity=severity, file="a.json", what=what, next="Look.")


def test_errors_carry_their_problems_worst_first_and_are_collected():
    given = [problem("note", "1."), problem("error", "2."), problem("warning", "3."), problem("error", "4.")]
    error = ProblemError(given, exit_code=3)
    assert [one.what for one in error.problems] == ["2.", "4.", "3.", "1."]
    assert (error.exit_code, ProblemError([]).exit_code) == (3, 1)
    problems: list[Problem] = []
    for each in (error, ProblemError([problem("error", "5.")])):
        with collect_problems(problems):
            raise each
    assert [one.what for one in problems] == ["2.", "4.", "3.", "1.", "5."]
    with pytest.raises(ValueError, match="other"), collect_problems(problems):
        raise ValueError("other")


@pytest.mark.parametrize(
    ("path", "pointer"), [((), ""), (("a", 0), "/a/0"), (("a/b", "m~n", ""), "/a~1b/m~0n/"), (("~1",), "/~01")]
)
def test_pointers_are_those_of_rfc_6901(path, pointer):
    assert pointer_to(path) == pointer


@pytest.mark.parametrize(
    ("file", "pointer", "path"),
    [
        ("runs/a/config.yaml", "/optimizer/learning_rate", "optimizer.learning_rate"),
        ("c.yml", "/data/rows/0/a~1b", "data.rows[0].a/b"),
        ("--set", "/seed", "seed"),
        ("c.yaml", "", ""),
        ("run_manifest.json", "/dataset/split", "/dataset/split"),
    ],
)
def test_a_place_is_written_as_its_file_writes_keys(file: str, pointer: str, path: str):
    problem = Problem(code="TP120", severity="error", file=file, what="x.", next="y.", pointer=pointer)
    assert problem.key_path == path


def test_a_problem_has_the_words_of_its_rule_where_it_says_nothing_else():
    rule, found = all_rules()["TP113"], problem_of("TP113", file="a.json", what="It is empty.")
    assert (found.what, found.why, found.next, found.severity) == ("It is empty.", rule.why, rule.fix, "error")
    other = problem_of("TP113", file="", what="It is empty.", why=None, next="Fill it.", severity="note")
    assert (other.why, other.next, other.severity) == (None, "Fill it.", "note")


def test_many_problems_of_one_kind_are_counted():
    problems = [problem_of("TP113", file="", what=f"{number}.") for number in range(8)]
    few = list(truncate_problems(iter(problems), 3))
    assert [problem.what for problem in few] == ["0.", "1.", "2. There are 5 more like it."]
    assert list(truncate_problems(problems[:3], 3)) == problems[:3]


def test_every_code_of_this_package_has_a_case():
    sources = "".join(path.read_text(encoding="utf-8") for path in Path("schemas").glob("*.py"))
    used = {code for code in all_rules() if f'"{code}"' in sources and "TP100" <= code < "TP150"}
    shown = set(re.findall(r"TP\d{3}", "".join(path.read_text(encoding="utf-8") for path in BROKEN.glob("*.txt"))))
    # No document shows these: a missing file, a Python value, hundreds of bad lines, what is too large.
    assert used - shown == {"TP101", "TP127", "TP132", "TP133", "TP134"}


SCORE = Problem(
    code="TP120",
    severity="error",
    file="submission_runs/a/eval_summary.json",
    line=12,
    pointer="/metrics/exact_match/value",
    what="null is not a number.",
    why="A finished run states a number here.",
    expected="a number from 0 to 1",
    next="Evaluate the run again.",
)
TAIL = Problem(
    code="TP130", severity="warning", file="m.jsonl", line=3, what="The last line is incomplete.", next="Wait."
)
PLAIN = Problem(code="TP000", severity="note", file="", what="Nothing was given", next="Name a folder")
HOSTILE = Problem(
    code="TP123",
    severity="error",
    file="a,b:c\n::error::d.json",
    line=1,
    pointer="/50%\x1b[2J",
    what='The key "<b>\x1b[2J&\r\n" is unknown.',
    next="Delete it.",
)
PROBLEMS = st.lists(
    st.builds(
        Problem,
        code=st.from_regex(r"TP\d{3}", fullmatch=True),
        severity=st.sampled_from(["error", "warning", "note"]),
        file=st.text(max_size=20),
        what=st.text(max_size=40),
        next=st.text(max_size=20),
        why=st.none() | st.text(max_size=20),
        expected=st.none() | st.text(max_size=20),
        line=st.none() | st.integers(1, 10**6),
        pointer=st.none() | st.text(max_size=20),
    ),
    max_size=4,
)


def test_text():
    assert render_text([SCORE, PLAIN, HOSTILE]) == (
        "error TP120: submission_runs/a/eval_summary.json at /metrics/exact_match/value (line 12): "
        "null is not a number.\n"
        "  A finished run states a number here.\n"
        "  Expected: a number from 0 to 1.\n"
        "  Next: Evaluate the run again.\n"
        "note TP000: Nothing was given.\n"
        "  Next: Name a folder.\n"
        'error TP123: a,b:c\\n::error::d.json at /50%\\x1b[2J (line 1): The key "<b>\\x1b[2J&\\r\\n" is unknown.\n'
        "  Next: Delete it.\n"
    )
    assert render_text([]) == ""
    assert render_sentence(TAIL) == "m.jsonl (line 3): The last line is incomplete. Next: Wait."


def test_github():
    assert render_github([SCORE, PLAIN, HOSTILE]) == (
        "::error file=submission_runs/a/eval_summary.json,line=12,title=TP120::/metrics/exact_match/value: null is not "
        "a number. A finished run states a number here. Expected: a number from 0 to 1. Next: Evaluate the run again.\n"
        "::notice title=TP000::Nothing was given. Next: Name a folder.\n"
        "::error file=a%2Cb%3Ac%0A%3A%3Aerror%3A%3Ad.json,line=1,title=TP123::/50%25\\x1b[2J: "
        'The key "<b>\\x1b[2J&\\r\\n" is unknown. Next: Delete it.\n'
    )


@given(PROBLEMS)
def test_a_problem_is_one_command_for_github(problems):
    lines = render_github(problems).split("\n")
    assert len(lines) == len(problems) + 1
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines[:-1])


def test_sarif():
    run = json.loads(render_sarif([SCORE, PLAIN]))["runs"][0]
    first, second = run["results"]
    assert (first["ruleId"], first["ruleIndex"], first["level"]) == ("TP120", 1, "error")
    place = {"artifactLocation": {"uri": "submission_runs/a/eval_summary.json"}, "region": {"startLine": 12}}
    logical = [{"fullyQualifiedName": "/metrics/exact_match/value", "kind": "value"}]
    assert first["locations"] == [{"physicalLocation": place, "logicalLocations": logical}]
    text = {"text": "Nothing was given. Next: Name a folder."}
    assert second == {"ruleId": "TP000", "ruleIndex": 0, "level": "note", "message": text}
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["TP000", "TP120"]
    assert run["tool"]["driver"]["rules"][1]["shortDescription"] == {"text": "Wrong type"}


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("a b/ü.json", "a%20b/%C3%BC.json"),
        ("runs\\a.json", "runs/a.json"),
        ("/tmp/a#b.json", "file:///tmp/a%23b.json"),
        ("50%.json", "50%25.json"),
        ("C:\\a b\\c.json", "file:///C:/a%20b/c.json"),
    ],
)
def test_paths_in_sarif_are_uris(file: str, uri: str):
    log = json.loads(render_sarif([replace(SCORE, file=file)]))
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == uri


def check_sarif(log: dict[str, Any]) -> None:
    """Hold a log to the demands of SARIF 2.1.0 (OASIS) that apply to the properties we write."""
    assert set(log) == {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"  # §3.13.2
    for run in log["runs"]:
        assert set(run) == {"tool", "results"}
        driver = run["tool"]["driver"]
        assert driver["name"]  # §3.19.8: required
        ids = [rule["id"] for rule in driver["rules"]]  # §3.49.3: required
        assert len(ids) == len(set(ids))  # §3.19.23: unique
        for rule in driver["rules"]:
            for name in rule.keys() & {"shortDescription", "fullDescription", "help"}:
                assert rule[name]["text"]
            level = rule.get("defaultConfiguration", {}).get("level", "warning")
            assert level in ("none", "note", "warning", "error")  # §3.50.3
        for result in run["results"]:
            assert result["message"]["text"]  # §3.27.11: required
            assert result["level"] in ("none", "note", "warning", "error")  # §3.27.10
            assert ids[result["ruleIndex"]] == result["ruleId"]  # §3.27.6
            for location in result.get("locations", []):
                assert location  # §3.28: says something
                region = location.get("physicalLocation", {}).get("region", {"startLine": 1})
                assert isinstance(region["startLine"], int)
                assert region["startLine"] >= 1  # §3.30.5
                for logical in location.get("logicalLocations", []):
                    assert logical["fullyQualifiedName"]
                if "physicalLocation" in location:
                    uri = location["physicalLocation"]["artifactLocation"]["uri"]
                    assert uri.isascii()
                    assert not set(uri) & set(' "<>\\^`{|}')  # RFC 3986: never legal in a URI


@given(PROBLEMS)
def test_sarif_is_well_formed(problems):
    check_sarif(json.loads(render_sarif(problems)))


@pytest.mark.parametrize(
    ("write", "cases"),
    [
        # A size never shows as 1000.0 KiB or 1010 MiB.
        (formats.size, {None: "–", 0: "0 B", 999: "999 B", 999.94 * 1024: "999.9 KiB", 999.96 * 1024: "1.0 MiB"}),
        (formats.size, {1_059_061_760: "0.99 GiB", 1_234.5 * 2**30: "1,234.50 GiB", -3 * 2**30: "-3.00 GiB"}),
        (formats.duration, {None: "–", 0: "0.0 s", 0.0999: "99.9 ms", 0.09999: "0.1 s", 59.7: "59.7 s"}),
        (formats.duration, {59.97: "1 min 00 s", 3_599.7: "1 h 00 min", 3_600_000: "1,000 h 00 min"}),
        (formats.count, {None: "–", 0: "0", 1234567: "1,234,567"}),
        (
            formats.short_count,
            {None: "–", 0.25: "0.250", 950: "950", 999.9: "1.00 k", 999_999: "1.00 M", 3e12: "3.00 T"},
        ),
        (
            formats.number,
            {None: "–", 0: "0", 9.99996: "10.00", 12_345.6: "12346", 1.5e9: "1.500e+09", math.nan: "not finite"},
        ),
        (formats.percent, {None: "–", 0: "0.0 %", 0.625: "62.5 %", 1: "100.0 %"}),
        (formats.points, {None: "–", 0.125: "+12.5 points", -0.03: "−3.0 points"}),
        (partial(formats.rate, unit="tokens"), {None: "–", 12_345: "12.3 k tokens/s"}),
        (partial(formats.percent_range, high=0.709), {None: "–", 0.521: "52.1–70.9 %"}),
    ],
)
def test_figures(write, cases):
    assert {value: write(value) for value in cases} == cases


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("naïve 模型 🙂", "naïve 模型 🙂"),
        ("0.5\u202fs, 1\u00a0000", "0.5\u202fs, 1\u00a0000"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("one\ntwo\r\tthree", r"one\ntwo\r\tthree"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("safe\u202etxt.exe", r"safe\u202etxt.exe"),
        ("a\u200bb\ufeff\u2028", r"a\u200bb\ufeff\u2028"),
        ("half \ud800", r"half \ud800"),
        ("tag \U000e0041", r"tag \U000e0041"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown
    visible(text).encode()


def test_a_value_makes_no_line() -> None:
    assert join_lines(["run-1", "run-2\nrun-3  verified", 4]) == "run-1\nrun-2\\nrun-3  verified\n4\n"


HEAVY = ("jsonschema", "jsonschema_rs", "yaml", "numpy", "urllib.request", "asyncio", "xml")


@pytest.mark.parametrize(("module", "heavy"), [("schemas.render", HEAVY), ("schemas.validate", ("yaml",))])
def test_imports_are_cheap(module, heavy):
    code = f"import sys, {module}; print([one for one in {heavy!r} if one in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
