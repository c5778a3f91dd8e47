import subprocess
import sys
import zipfile
from pathlib import Path

from schemas.catalog import KINDS, document_kind, node_types, resolve_node, row_fields, schema

ROOT = Path(__file__).parents[2]


def test_kind_of_a_file_name():
    kinds = {"config.yaml": "train_config", "run-f16.receipt.json": "export_receipt", "receipt.json": None, "": None}
    assert {name: document_kind(name) for name in kinds} == kinds


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
        "print(len(catalog.all_schemas()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == (f"{len(KINDS) + 1}\n", "")


def test_the_wheel_carries_the_schemas():
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = settings["package-data"]["schemas"]
    packed = {path for pattern in patterns for path in (ROOT / "schemas").glob(pattern)}
    assert packed == {ROOT / "schemas" / "rules.toml", *(ROOT / "schemas" / "documents").rglob("*.json")}


def test_the_fields_of_a_metric_row_are_those_of_the_schema():
    document = schema("metric_row")
    assert [field.name for field in row_fields()] == list(document["properties"])
    assert [field.name for field in row_fields() if field.is_axis] == ["step", "tokens_seen", "time"]
    nodes = {name: resolve_node(node, document) for name, node in document["properties"].items()}
    assert [name for name, node in nodes.items() if set(node_types(node)) - {"integer", "number", "null"}] == ["time"]
    large = [field.name for field in row_fields() if field.panel and field.panel.get("large")]
    assert large == ["loss", "reward_mean"]
