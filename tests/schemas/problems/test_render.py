"""Each way of saying problems, compared whole; SARIF also against its schema."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas.problems.problem import Problem
from schemas.problems.render import FIELDS, as_dicts, as_github, as_sarif, as_sentence, as_text

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
ALL = [SCORE, TAIL, PLAIN, HOSTILE]

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
    assert as_text(ALL) == (
        "error TP120: submission_runs/a/eval_summary.json at /metrics/exact_match/value (line 12): "
        "null is not a number.\n"
        "  A finished run states a number here.\n"
        "  Expected: a number from 0 to 1.\n"
        "  Next: Evaluate the run again.\n"
        "warning TP130: m.jsonl (line 3): The last line is incomplete.\n"
        "  Next: Wait.\n"
        "note TP000: Nothing was given.\n"
        "  Next: Name a folder.\n"
        'error TP123: a,b:c\\n::error::d.json at /50%\\x1b[2J (line 1): The key "<b>\\x1b[2J&\\r\\n" is unknown.\n'
        "  Next: Delete it.\n"
    )
    assert as_text([]) == ""


def test_sentence():
    assert as_sentence(SCORE) == (
        "submission_runs/a/eval_summary.json at /metrics/exact_match/value (line 12): null is not a number. "
        "A finished run states a number here. Expected: a number from 0 to 1. Next: Evaluate the run again."
    )


def test_dicts():
    assert as_dicts([TAIL]) == [
        {
            "code": "TP130",
            "severity": "warning",
            "file": "m.jsonl",
            "line": 3,
            "pointer": None,
            "what": "The last line is incomplete.",
            "why": None,
            "expected": None,
            "next": "Wait.",
        }
    ]
    assert list(as_dicts([SCORE])[0]) == list(FIELDS)


def test_github():
    assert as_github(ALL) == (
        "::error file=submission_runs/a/eval_summary.json,line=12,title=TP120::/metrics/exact_match/value: null is not "
        "a number. A finished run states a number here. Expected: a number from 0 to 1. Next: Evaluate the run again.\n"
        "::warning file=m.jsonl,line=3,title=TP130::The last line is incomplete. Next: Wait.\n"
        "::notice title=TP000::Nothing was given. Next: Name a folder.\n"
        "::error file=a%2Cb%3Ac%0A%3A%3Aerror%3A%3Ad.json,line=1,title=TP123::/50%25\\x1b[2J: "
        'The key "<b>\\x1b[2J&\\r\\n" is unknown. Next: Delete it.\n'
    )


@given(PROBLEMS)
def test_a_problem_is_one_command_for_github(problems):
    lines = as_github(problems).split("\n")
    assert len(lines) == len(problems) + 1
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines[:-1])


def test_sarif():
    log = json.loads(as_sarif([SCORE, PLAIN]))
    assert log["runs"][0]["results"] == [
        {
            "ruleId": "TP120",
            "ruleIndex": 1,
            "level": "error",
            "message": {
                "text": "null is not a number. A finished run states a number here. Expected: a number from 0 to 1. "
                "Next: Evaluate the run again."
            },
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": "submission_runs/a/eval_summary.json"},
                        "region": {"startLine": 12},
                    },
                    "logicalLocations": [{"fullyQualifiedName": "/metrics/exact_match/value", "kind": "value"}],
                }
            ],
        },
        {
            "ruleId": "TP000",
            "ruleIndex": 0,
            "level": "note",
            "message": {"text": "Nothing was given. Next: Name a folder."},
        },
    ]
    assert log["runs"][0]["tool"]["driver"]["rules"] == [
        {"id": "TP000"},
        {
            "id": "TP120",
            "shortDescription": {"text": "Wrong type"},
            "fullDescription": {"text": "A value is of another type than its field: text for a number, say."},
            "help": {"text": "Correct it."},
            "defaultConfiguration": {"level": "error"},
        },
    ]


def test_paths_in_sarif_are_uris():
    uris = {}
    for file in ("a b/ü.json", "runs\\a.json", "/tmp/a#b.json", "50%.json", "C:\\a b\\c.json"):
        problem = Problem(code="TP101", severity="error", file=file, what="Bad.", next="Look.")
        log = json.loads(as_sarif([problem]))
        uris[file] = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uris == {
        "a b/ü.json": "a%20b/%C3%BC.json",
        "runs\\a.json": "runs/a.json",
        "/tmp/a#b.json": "file:///tmp/a%23b.json",
        "50%.json": "50%25.json",
        "C:\\a b\\c.json": "file:///C:/a%20b/c.json",
    }


def message(value: Any) -> None:
    assert set(value) == {"text"}
    assert isinstance(value["text"], str)
    assert value["text"]


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
            for name in ("shortDescription", "fullDescription", "help"):
                if name in rule:
                    message(rule[name])
            level = rule.get("defaultConfiguration", {}).get("level", "warning")
            assert level in ("none", "note", "warning", "error")  # §3.50.3
        for result in run["results"]:
            message(result["message"])  # §3.27.11: required
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
    check_sarif(json.loads(as_sarif(problems)))
