from __future__ import annotations

from pathlib import Path

from launch.jobs.output import tail


def test_the_last_lines_as_a_terminal_would_leave_them(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"first\n\x1b[31mred\x1b[0m\nstep 1\rstep 2\rstep 3\n\n\n")
    assert tail(path) == "first\nred\nstep 3"
    assert tail(path, lines=1) == "step 3"


def test_a_long_file_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert tail(path, lines=2) == "line 99998\nline 99999"


def test_keys_in_output_are_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_text("HF_TOKEN=hf_abcdefghijklmnopqrstuvwx\n")
    assert tail(path) == "HF_TOKEN=[hidden]"


def test_no_file_is_no_output(tmp_path: Path) -> None:
    assert tail(tmp_path / "nothing") == ""
