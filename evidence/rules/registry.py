"""TP38x: what stands under a built-in or well-known name and is something else; the registry that ships knows both.

What a name means is looked up, never guessed: a file of one's own, and a model of another name, are skipped here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evidence.records.facts import Document, Facts, finding
from evidence.registry import built_in
from evidence.registry.known_models import family_of, parameters_of
from evidence.rules.contradiction.scores import answers_of
from evidence.run import layout
from schemas.formats import format_value
from schemas.problems import Problem, truncate_problems

_HASHES = ("sha256", "ids_sha256", "prompts_sha256", "expected_sha256")


def dataset_is_the_built_in_one(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the dataset has a built-in name and another hash, split, or number of rows or repetitions.

    No built-in row repeats another one; generated rows may.
    """
    stated = facts.manifest["dataset"] if facts.manifest else None
    known = built_in.dataset(stated["name"]) if stated else None
    if stated is None or known is None:
        return
    right_ones = dict(known)
    if not stated["generated_rows"] and ((facts.config or {}).get("data") or {}).get("kind", "rows") == "rows":
        right_ones["duplicates"] = 0
    for key, value in right_ones.items():
        if stated[key] != value:
            right = format_value(value)
            what = f"{stated['name']} is stated with {key} {format_value(stated[key])}; the built-in one has {right}."
            pointer = f"/dataset/{key}"
            yield finding(facts.folder, "TP381", layout.MANIFEST, what, expected=right, pointer=pointer)


def items_are_the_built_in_ones(facts: Facts) -> Iterator[Problem]:
    """Yield problems where an evaluation set has a built-in name and other items, as a whole or one by one."""
    stated = facts.eval_summary["eval_set"] if facts.eval_summary else None
    known = built_in.eval_set(stated["name"]) if stated else None
    if stated is None or known is None:
        return
    name = stated["name"]
    if stated["items"] != known["items"]:
        what = f"{name} is stated with {stated['items']:,} items; it has {known['items']:,}."
        yield _items(facts, what, expected=str(known["items"]), pointer="/eval_set/items")
    for key in _HASHES:
        if stated[key] != known[key]:
            what = f"The {key} stated for {name} is not the built-in set's."
            yield _items(facts, what, expected=known[key], pointer=f"/eval_set/{key}")
    for answers in answers_of(facts):
        yield from truncate_problems(_strange_items(facts, name, known["rows"], answers.file, answers.rows))


def model_is_the_built_in_one(facts: Facts) -> Iterator[Problem]:
    """Yield problems where a model has a built-in name and another family, size or origin."""
    stated = facts.model
    known = built_in.MODELS.get(stated["name"]) if stated else None
    if stated is None or known is None:
        return
    for key, value in (("family", stated["family"]), ("weights", stated["weights"]), ("parameters", _base(facts))):
        if value is not None and value != known[key]:
            what = (
                f"{stated['name']} is stated with {key} {format_value(value)}; the built-in "
                f"model has {format_value(known[key])}."
            )
            yield finding(
                facts.folder,
                "TP383",
                layout.MANIFEST,
                what,
                expected=format_value(known[key]),
                pointer=f"/model/{key}",
            )


def model_has_its_published_size(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where a well-known model has another number of parameters than its owner states."""
    if facts.model is None or (size := _base(facts)) is None:
        return
    published = parameters_of(facts.model["name"])
    if published is not None and published != size:
        yield finding(
            facts.folder,
            "TP384",
            layout.MANIFEST,
            f"{facts.model['name']} is stated with {size:,} parameters; {published:,} are published.",
            expected=f"{published:,}",
            pointer="/model/parameters",
        )


def model_has_its_published_family(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where a well-known model has another family than its own config.json states."""
    if facts.model is None or (published := family_of(facts.model["name"])) is None:
        return
    stated = facts.model["family"]
    if stated is not None and stated.removesuffix("_text") != published:
        what = f"{facts.model['name']} is stated with the family {stated}; it is of {published}."
        yield finding(facts.folder, "TP384", layout.MANIFEST, what, expected=published, pointer="/model/family")


def generator_seed_follows_from_the_seed(facts: Facts) -> Iterator[Problem]:
    """Yield a problem if the seed of the generated rows does not follow from the seed of the run."""
    if facts.manifest is None or facts.training is None:
        return
    dataset, seed = facts.manifest["dataset"], facts.training["seed"] + built_in.GENERATOR_SEED_OFFSET
    if dataset["generated_rows"] and dataset["generator_seed"] != seed:
        stated = format_value(dataset["generator_seed"])
        what = f"generator_seed is {stated}; a run with seed {facts.training['seed']} has {seed}."
        pointer = "/dataset/generator_seed"
        yield finding(facts.folder, "TP386", layout.MANIFEST, what, expected=str(seed), pointer=pointer)


def _strange_items(facts: Facts, name: str, known: Document, file: str, rows: Sequence[Document]) -> Iterator[Problem]:
    for line, row in enumerate(rows, start=1):
        if (right := known.get(row["id"])) is None:
            what, pointer = f"{name} has no item {row['id']}.", "/id"
        elif right != built_in.item_key(row):
            what, pointer = f"The item {row['id']} of {name} has another prompt, answer or label.", "/prompt"
        else:
            continue
        yield finding(facts.folder, "TP382", file, what, line=line, pointer=pointer)


def _items(facts: Facts, what: str, *, expected: str, pointer: str) -> Problem:
    return finding(facts.folder, "TP382", layout.EVAL_SUMMARY, what, expected=expected, pointer=pointer)


def _base(facts: Facts) -> int | None:
    """Return the parameters of the model without what was added to it; None where few bits hold several of them."""
    if facts.model is None or facts.training is None:
        return None
    if ((facts.config or {}).get("method") or {}).get("base", "plain") != "plain":
        return None
    added = facts.model["trainable_parameters"] if facts.has_adapters else 0
    return int(facts.model["parameters"] - added)


CHECKS = (
    dataset_is_the_built_in_one,
    items_are_the_built_in_ones,
    model_is_the_built_in_one,
    model_has_its_published_size,
    model_has_its_published_family,
    generator_seed_follows_from_the_seed,
)
