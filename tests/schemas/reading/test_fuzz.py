"""Whatever bytes a file holds, reading it gives problems, never an exception, and every problem can be said."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.catalog import DOCUMENTS, ROWS
from schemas.problems.render import as_github, as_sarif, as_text
from schemas.reading.parse import parse_json, parse_yaml
from schemas.validate import read_document, read_rows

pytestmark = pytest.mark.slow

CASES = [path.read_bytes() for path in sorted(Path(__file__).parents[2].glob("cases/documents/*/*[!t]"))]
PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b",",
    b"\\",
    b"\\u",
    b"\\ud800",
    b"\n",
    b"\r",
    b"\t",
    b" ",
    b"\x00",
    b"\xff",
]
PIECES += [b"\xef\xbb\xbf", b"\xff\xfe", b"1e999", b"NaN", b"-", b"0", b"9" * 400, b"null", b"true", b"#", b"&a", b"*a"]
PIECES += [b"!!", b"|", b">", b"? ", b"- ", b"---", b"...", b"%", b"'", b"<<", b"~", b".inf", b"\xe2\x80\xa8", b"a"]


@st.composite
def damaged_cases(draw: st.DrawFn) -> bytes:
    """Draw a case file with a piece cut out and another put in, a few times."""
    data = draw(st.sampled_from(CASES))
    for _ in range(draw(st.integers(1, 4))):
        start, length = draw(st.integers(0, len(data))), draw(st.integers(0, 20))
        data = data[:start] + draw(st.sampled_from(PIECES) | st.binary(max_size=4)) + data[start + length :]
    return data


BYTES = st.binary(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=20).map(b"".join) | damaged_cases()


def say(problems) -> None:
    for render in (as_text, as_github, as_sarif):
        render(problems).encode("utf-8")


@settings(max_examples=400, deadline=None)
@given(BYTES)
def test_parsing_never_raises(data):
    for parse in (parse_json, parse_yaml):
        parsed = parse(data, file="x")
        assert parsed.is_read or parsed.problems
        say(parsed.problems)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_reading_a_document_never_raises(kind, tmp_path):
    path = tmp_path / "x"

    @settings(max_examples=80, deadline=None)
    @given(BYTES)
    def check(data):
        path.write_bytes(data)
        document = read_document(path, kind)
        assert document.problems or document.value is not None
        say(document.problems)

    check()


@pytest.mark.parametrize("kind", ROWS)
def test_reading_rows_never_raises(kind, tmp_path):
    path = tmp_path / "x"

    @settings(max_examples=80, deadline=None)
    @given(BYTES)
    def check(data):
        path.write_bytes(data)
        rows = read_rows(path, kind)
        assert len(rows.values) + len(rows.left_out) <= data.count(b"\n") + 1
        assert rows.bytes_read <= len(data)
        say(rows.problems)

    check()
