"""Compare datasets, evaluation sets and models that have a built-in or well-known name with the registry."""

from __future__ import annotations

from evidence import registry
from evidence.layout import EVAL_SUMMARY, MANIFEST
from evidence.rules.checker import Checker, ValidRun, rule
from evidence.rules.scores import evaluated_models
from schemas.reading import get_path


@rule("TP381", "manifest")
def built_in_dataset(run: ValidRun, check: Checker) -> None:
    """Compare hash, split and rows with the built-in dataset; none of its rows repeats, but generated rows may."""
    stated = run.manifest["dataset"]
    if known := registry.built_in_dataset(stated["name"]):
        has_only_its_rows = not stated["generated_rows"] and get_path(run.config, "data", "kind") in (None, "rows")
        for key, value in (dict(known) | ({"duplicates": 0} if has_only_its_rows else {})).items():
            check.equal(MANIFEST, f"/dataset/{key}", stated[key], value, f"the built-in {stated['name']}")


@rule("TP382", "eval_summary")
def built_in_items(run: ValidRun, check: Checker) -> None:
    """Compare the hashes of the evaluation set and every item with the built-in set."""
    stated = run.eval_summary["eval_set"]
    name = stated["name"]
    if known := registry.built_in_eval_set(name):
        for key in ("items", "sha256", "ids_sha256", "prompts_sha256", "expected_sha256"):
            check.equal(EVAL_SUMMARY, f"/eval_set/{key}", stated[key], known[key], f"the built-in {name}")
        for model in evaluated_models(run):
            for line, row in enumerate(model.rows, start=1):
                what, item = f"{row['id']} is not an item of {name}.", known["rows"].get(row["id"])
                check.require(item, model.file, what, "/id", line=line)
                what = f"{row['id']} of {name} has another prompt, expected answer or label."
                check.require(item in (None, registry.item_key(row)), model.file, what, "/prompt", line=line)


@rule("TP383", "model")
def known_model(run: ValidRun, check: Checker) -> None:
    """Compare family, weights and size with the built-in or published model."""
    name, family = run.model["name"], run.model["family"]
    added = run.model["trainable_parameters"] if run.has_adapters else 0
    stated = {"family": family, "weights": run.model["weights"]}
    # A quantised base packs several parameters into one number.
    if run.training and get_path(run.config, "method", "base") in (None, "plain"):
        stated["parameters"] = run.model["parameters"] - added
    if built_in := registry.BUILT_IN_MODELS.get(name):
        for key, value in stated.items():
            if value is not None:
                check.equal(MANIFEST, f"/model/{key}", value, built_in[key], f"the built-in model {name}")
    published = {"family": registry.published_family(name), "parameters": registry.published_parameters(name)}
    stated["family"] = None if family is None else family.removesuffix("_text")
    for key, value in published.items():
        if value is not None and stated.get(key) is not None:
            source = f"the published {name}"
            check.equal(MANIFEST, f"/model/{key}", stated[key], value, source, code="TP384")
