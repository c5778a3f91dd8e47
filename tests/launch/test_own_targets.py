"""A machine of one's own, put in on the page: checked, kept under its name, another question once it is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.targets import load_target
from launch.own_targets import keep, own_targets
from schemas.problems import ProblemError

SAMPLE = Path(__file__).parents[1] / "cases" / "documents" / "valid" / "target.own_gpu.yaml"


def test_what_is_kept_is_the_machine_that_the_file_describes(tmp_path: Path) -> None:
    assert own_targets(tmp_path) == {}
    assert keep(tmp_path, SAMPLE.read_bytes(), file="mine.yaml") == "my-4060ti"
    [(name, path)] = own_targets(tmp_path).items()
    assert name == "my-4060ti"
    assert load_target(str(path)) == load_target(str(SAMPLE))


def test_a_changed_file_takes_the_place_of_the_earlier_and_is_another_question(tmp_path: Path) -> None:
    keep(tmp_path, SAMPLE.read_bytes(), file="mine.yaml")
    before = own_targets(tmp_path)["my-4060ti"]
    keep(tmp_path, SAMPLE.read_bytes().replace(b"value: 15.6", b"value: 7.6"), file="mine.yaml")
    after = own_targets(tmp_path)
    assert list(after) == ["my-4060ti"]
    assert after["my-4060ti"] != before
    assert not before.exists()
    assert load_target(str(after["my-4060ti"])).memory_bytes == int(7.6 * 2**30)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (SAMPLE.read_bytes().replace(b"devices: 1", b"devices: 0"), "/devices"),
        (SAMPLE.read_bytes().replace(b"name: my-4060ti", b"name: ../../x"), "/name"),
        (b"- a list\n", "mine.yaml"),
        (b"\xff\xfe", "mine.yaml"),
        (b"a: [", "mine.yaml"),
        (b"", "mine.yaml"),
    ],
)
def test_a_file_that_is_no_machine_is_refused_with_what_is_wrong(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        keep(tmp_path, data, file="mine.yaml")
    assert caught.value.exit_code == 2
    assert any(said in f"{problem.file} {problem.pointer}" for problem in caught.value.problems)
    assert own_targets(tmp_path) == {}


def test_a_link_or_another_name_that_came_with_the_root_is_not_offered(tmp_path: Path) -> None:
    keep(tmp_path, SAMPLE.read_bytes(), file="mine.yaml")
    [path] = own_targets(tmp_path).values()
    (path.parent / "--set=x-0123456789ab.yaml").write_text("")
    (path.parent / "linked-0123456789ab.yaml").symlink_to(SAMPLE)
    (path.parent / "folder-0123456789ab.yaml").mkdir()
    assert own_targets(tmp_path) == {"my-4060ti": path}
