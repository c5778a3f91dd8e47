import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from schemas.catalog import KINDS, ROWS, is_rows, kind_of, resolve, schema

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("run_manifest.json", "run_manifest"),
        ("config.yaml", "train_config"),
        ("plan.json", "plan"),
        ("metrics.jsonl", "metric_row"),
        ("log.jsonl", "log_record"),
        ("first_examples.json", "first_examples"),
        ("chain.jsonl", "chain_entry"),
        ("system.jsonl", "system_row"),
        ("rollouts.jsonl", "rollout_row"),
        ("answers_over_steps.jsonl", "answer_over_step"),
        ("predictions.jsonl", "prediction_row"),
        ("baseline_predictions.jsonl", "prediction_row"),
        ("eval_summary.json", "eval_summary"),
        ("bundle_manifest.json", "bundle_manifest"),
        ("notes.json", "notes"),
        ("run-f16.receipt.json", "export_receipt"),
        ("receipt.json", None),
        ("notes.txt", None),
        ("", None),
    ],
)
def test_kind_of_a_file_name(name, kind):
    assert kind_of(name) == kind


def test_rows_are_kinds_of_their_own():
    assert [kind for kind in KINDS if is_rows(kind)] == list(ROWS)


def test_a_reference_leads_to_its_document():
    document, node = resolve(schema("metric_row"), "types.schema.json#/$defs/count")
    assert document is schema("types")
    assert node is schema("types")["$defs"]["count"]
    document, node = resolve(schema("eval_summary"), "#/$defs/metric")
    assert document is schema("eval_summary")
    assert node is schema("eval_summary")["$defs"]["metric"]


def test_the_schemas_are_found_inside_a_zipped_package(tmp_path):
    # As importlib.resources sees a package that is no folder; an installed wheel is an easier case of the same.
    archive = tmp_path / "site.zip"
    with zipfile.ZipFile(archive, "w") as bundle:
        for path in sorted((ROOT / "schemas").rglob("*")):
            if path.suffix in (".py", ".json"):
                bundle.write(path, path.relative_to(ROOT))
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        "from schemas import catalog\n"
        "assert 'site.zip' in catalog.__file__, catalog.__file__\n"
        "print(len(catalog.schemas_of()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == (f"{len(KINDS) + 1}\n", "")


def test_the_wheel_carries_the_schemas():
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = settings["package-data"]["schemas"]
    packed = {path for pattern in patterns for path in (ROOT / "schemas").glob(pattern)}
    assert packed == {ROOT / "schemas" / "rules.toml", *(ROOT / "schemas" / "documents").rglob("*.json")}
