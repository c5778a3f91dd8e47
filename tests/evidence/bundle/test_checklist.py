"""The checklist says the same as the builder, line by line, without writing anything."""

from __future__ import annotations

from pathlib import Path

from mutations import apply
from synthetic import seal, write_run

from evidence.bundle.inspection import checklist

Line = tuple[str, str, str, str]
NOT_CHALLENGED = "Can be challenged: no, the zip holds no parameters, so nobody can put questions to the model."


def lines(*folders: Path, with_weights: bool = False) -> list[Line]:
    return [(item.run, item.what, item.state, item.detail) for item in checklist(folders, with_weights=with_weights)]


def test_a_good_run(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    (run / "export").mkdir()
    size = sum(path.stat().st_size for path in run.iterdir() if path.is_file())
    assert lines(run) == [
        ("demo", "grade", "ok", "The run is graded consistent."),
        ("demo", "errors", "ok", "`trainproof check` finds no error."),
        ("demo", "end of the run", "ok", "Nothing writes to the folder."),
        ("demo", "secrets", "ok", "No file holds a known kind of secret."),
        ("demo", "challenge", "note", NOT_CHALLENGED),
        ("demo", "files", "ok", f"9 files, {size:,} bytes. Left out: export."),
    ]


def test_a_bad_run(tmp_path: Path):
    run = write_run(tmp_path, "cut", status="interrupted")
    (run / "notes.txt").write_text("see /home/ada/x\npassword: hunter2hunter2\n")
    seal(run)
    (run / "link").symlink_to("notes.txt")
    found = {(what, state): detail for _, what, state, detail in lines(run)}
    assert found["grade", "blocked"] == "The run is graded partial: The run was interrupted after 10 of 20 steps."
    assert found["secrets", "blocked"] == "notes.txt: Line 2 holds a password: hun… (14 characters)."
    assert found["personal details", "warning"] == "notes.txt: Line 1 holds a home folder: … (3 characters)."
    assert found["files", "blocked"] == "link: This is a symbolic link, not a file."
    assert ("secrets", "ok") not in found


def test_the_errors_of_a_contradictory_run_are_counted(tmp_path: Path):
    run = write_run(tmp_path, "forged")
    apply(run, {"file": "run_manifest.json", "pointer": "/result/best_loss", "value": 0.5})
    found = {(what, state): detail for _, what, state, detail in lines(run)}
    assert found["errors", "blocked"] == (
        "The run has 1 error; the first: result.best_loss is 0.5; metrics.jsonl gives 1.469558."
    )
    advice = {item.what: item.next for item in checklist([run])}
    assert advice["errors"] == ("Run `trainproof check` on the folder and repair what it names; no label makes it fit.")


def test_a_folder_whose_name_is_no_run_id(tmp_path: Path):
    write_run(tmp_path, "demo").rename(tmp_path / "my run")
    found = {(what, state): detail for _, what, state, detail in lines(tmp_path / "my run")}
    assert found["name", "blocked"] == "The run folder is named `my run`, which is not a run id."


def test_missing_folders(tmp_path: Path):
    (item,) = checklist([tmp_path / "nothing"])
    assert (item.run, item.what, item.state) == ("", "folder", "blocked")
    assert item.detail == f"{tmp_path / 'nothing'}: This does not exist."
    assert item.next == "Give the path of a run folder; `trainproof runs` lists them."


def test_weights_count_when_they_are_asked_for(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    (run / "export").mkdir()
    (run / "export" / "model.safetensors").write_bytes(bytes(5000))
    assert lines(run, with_weights=True)[-1][3].startswith("10 files, ")


def test_small_weights_are_packed_and_large_ones_only_if_asked_for(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    (run / "adapter").mkdir()
    (run / "adapter" / "adapter_model.safetensors").write_bytes(b"\0" * 100)
    perhaps = "Can be challenged: perhaps, adapter/ is packed; whether it holds what answered was not looked at."
    assert ("demo", "challenge", "note", perhaps) in lines(run)
    [advice] = [item.next for item in checklist([run]) if item.what == "challenge"]
    assert advice == f"See with `trainproof challenge {run} --generate 1`."
    assert "Left out" not in lines(run)[-1][3]
    with (run / "adapter" / "adapter_model.safetensors").open("wb") as file:
        file.truncate((32 << 20) + 1)
    assert ("demo", "challenge", "note", NOT_CHALLENGED) in lines(run)
    [advice] = [item.next for item in checklist([run]) if item.what == "challenge"]
    assert advice == f"Pack adapter/ too: trainproof package {run} --with-weights."
    assert ("demo", "challenge", "note", perhaps) in lines(run, with_weights=True)


def test_trained_parameters_need_no_other_weights(tmp_path: Path):
    run = write_run(tmp_path, "demo")
    (run / "trained_params.safetensors").write_bytes(b"\0arrays of ada@example.org, which are no text")
    seal(run)
    (run / "export").mkdir()
    (run / "export" / "model.safetensors").write_bytes(b"\0")
    found = lines(run)
    assert (
        "demo",
        "challenge",
        "ok",
        "Can be challenged: yes, trained_params.safetensors has the hash of the parameters that answered.",
    ) in found
    assert found[-1][3].endswith("Left out: export.")
    assert not [line for line in found if line[1] == "personal details"]


def test_a_run_without_a_score_states_nothing_to_challenge(tmp_path: Path):
    assert "challenge" not in {line[1] for line in lines(write_run(tmp_path, "demo", items=0))}
