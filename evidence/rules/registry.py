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
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, first_few
from schemas.problems.words import show

OTHER_DATASET = Rule(
    "TP381",
    "Another dataset under a built-in name",
    "A built-in dataset has one content for ever; its rows and its hash ship with trainproof.",
    "Name the file that was used by its own name, or restore the manifest as the run wrote it.",
)
OTHER_ITEMS = Rule(
    "TP382",
    "Other items under a built-in name",
    "A built-in evaluation set has the same items for ever, labels and expected answers included.",
    "Evaluate on the built-in set, or give the set that was asked a name of its own.",
)
OTHER_BUILT_IN_MODEL = Rule(
    "TP383",
    "Another model under a built-in name",
    "A built-in model has one shape, and no trained weights exist of it.",
    "Restore the manifest as the run wrote it, or name the model that was trained.",
)
OTHER_SIZE = Rule(
    "TP384",
    "Other size or family than published",
    "The model's owner states its family and how many parameters it has; every copy of it has the same.",
    "Restore the manifest as the run wrote it, or name the model that was trained.",
)
OTHER_EXAMPLE = Rule(
    "TP385",
    "Training row that the dataset does not have",
    "The rows of a built-in dataset, and those that its generator draws from a seed, are known one by one.",
    "Restore first_examples.json as the run wrote it, or name the data that was used by its own name.",
)
OTHER_GENERATOR = Rule(
    "TP386",
    "Generated rows that do not follow from the seed",
    "The seed of the generator follows from the seed of the run, and the rows from the seed of the generator.",
    "Restore the manifest and first_examples.json as the run wrote them.",
)
OTHER_START = Rule(
    "TP387",
    "Start weights that this seed does not give here",
    "The start weights of a built-in model follow from its seed. They were drawn on x86-64 with one version of jax; "
    "another kind of processor or another version may round the last bits otherwise.",
    "Repeat the run on the machine that made it: `trainproof replay RUN`.",
    "warning",
)

_HASHES = ("sha256", "ids_sha256", "prompts_sha256", "expected_sha256")


def dataset_is_the_built_in_one(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the dataset has a built-in name and another hash, split, or number of rows or repetitions.

    Generated rows may repeat each other; how many do is known of those in the table.
    """
    stated = facts.manifest["dataset"] if facts.manifest else None
    known = built_in.dataset(stated["name"]) if stated else None
    if stated is None or known is None:
        return
    right_ones = {key: known[key] for key in ("sha256", "rows", "split")}
    table = _table(stated) if stated["generated_rows"] else known
    if table and ((facts.config or {}).get("data") or {}).get("kind", "rows") == "rows":
        right_ones["duplicates"] = table["duplicates"]
    for key, value in right_ones.items():
        if stated[key] != value:
            right = show(value)
            what = f"{stated['name']} is stated with {key} {show(stated[key])}; the built-in one has {right}."
            pointer = f"/dataset/{key}"
            yield finding(facts.folder, OTHER_DATASET, layout.MANIFEST, what, expected=right, pointer=pointer)


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
        yield from first_few(_strange_items(facts, name, known["rows"], answers.file, answers.rows))


def model_is_the_built_in_one(facts: Facts) -> Iterator[Problem]:
    """Yield problems where a model has a built-in name and another family, size or origin."""
    stated = facts.model
    known = built_in.model(stated["name"]) if stated else None
    if stated is None or known is None:
        return
    for key, value in (("family", stated["family"]), ("weights", stated["weights"]), ("parameters", _base(facts))):
        if value is not None and value != known[key]:
            what = f"{stated['name']} is stated with {key} {show(value)}; the built-in model has {show(known[key])}."
            yield finding(
                facts.folder,
                OTHER_BUILT_IN_MODEL,
                layout.MANIFEST,
                what,
                expected=show(known[key]),
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
            OTHER_SIZE,
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
        yield finding(facts.folder, OTHER_SIZE, layout.MANIFEST, what, expected=published, pointer="/model/family")


def examples_are_rows_of_the_dataset(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each training example of a built-in dataset that is not the row whose number it has."""
    if facts.manifest is None or facts.first_examples is None or not _plain_rows(facts):
        return
    dataset = facts.manifest["dataset"]
    known = built_in.dataset(dataset["name"])
    if known is None:
        return
    texts = dict(enumerate(known["texts"]))
    if table := _table(dataset):
        texts |= {int(row): text for row, text in table["texts"].items()}
    yield from first_few(
        finding(
            facts.folder,
            OTHER_EXAMPLE,
            layout.FIRST_EXAMPLES,
            f"Row {example['row']} of {dataset['name']} has another text.",
            pointer=f"/examples/{place}/text",
        )
        for place, example in enumerate(facts.first_examples["examples"])
        if not example["truncated"] and texts.get(example["row"], own := built_in.text_hash(example["text"])) != own
    )


def generated_rows_follow_from_the_seed(facts: Facts) -> Iterator[Problem]:
    """Yield problems where the generator's seed is not the run's, or the rows do not have its counts."""
    if facts.manifest is None or facts.training is None:
        return
    dataset, seed = facts.manifest["dataset"], built_in.generator_seed(facts.training["seed"])
    if dataset["generated_rows"] and dataset["generator_seed"] != seed:
        stated = show(dataset["generator_seed"])
        what = f"generator_seed is {stated}; a run with seed {facts.training['seed']} has {seed}."
        pointer = "/dataset/generator_seed"
        yield finding(facts.folder, OTHER_GENERATOR, layout.MANIFEST, what, expected=str(seed), pointer=pointer)
    table = _table(dataset)
    if table is None or facts.first_examples is None or not _plain_rows(facts):
        return
    counts = facts.first_examples["counts"]
    for key, value in table["counts"].items():
        if counts[key] != value and not counts["truncated_rows"]:
            what = f"{key} is {counts[key]:,}; the rows of seed {table['generator_seed']} have {value:,}."
            pointer = f"/counts/{key}"
            yield finding(
                facts.folder, OTHER_GENERATOR, layout.FIRST_EXAMPLES, what, expected=f"{value:,}", pointer=pointer
            )


def start_weights_follow_from_the_seed(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where a built-in model on a CPU began with other weights than the table has for its seed.

    Versions of jax draw differently (0.12 other than 0.10); what is not in the table is not judged.
    """
    stated = facts.model
    known = built_in.model(stated["name"]) if stated else None
    if known is None or stated is None or facts.manifest is None or facts.training is None:
        return
    devices = facts.manifest["devices"]
    # Flags of the compiler change how it rounds; several devices draw a part each.
    drawn_alike = (devices["platform"], devices["count"]) == ("cpu", 1) and not facts.manifest["environment"]["flags"]
    of_type = known["start_weights"].get(stated["dtypes"]["params"], {})
    drawn_by = built_in.jax_version(facts.manifest["environment"]["packages"].get("jax", ""))
    right = of_type.get(drawn_by, {}).get(str(facts.training["seed"]))
    from_seed = facts.trains_all and facts.manifest["parent"] is None
    if drawn_alike and from_seed and right not in (None, stated["weights_sha256"]):
        yield finding(
            facts.folder,
            OTHER_START,
            layout.MANIFEST,
            f"weights_sha256 is {stated['weights_sha256'][:12]}…; {stated['name']} with seed "
            f"{facts.training['seed']} began with {right[:12]}… where trainproof drew it with jax {drawn_by}.",
            expected=right,
            pointer="/model/weights_sha256",
        )


def _strange_items(facts: Facts, name: str, known: Document, file: str, rows: Sequence[Document]) -> Iterator[Problem]:
    for line, row in enumerate(rows, start=1):
        if (right := known.get(row["id"])) is None:
            what, pointer = f"{name} has no item {row['id']}.", "/id"
        elif right != built_in.item_hash(row):
            what, pointer = f"The item {row['id']} of {name} has another prompt, answer or label.", "/prompt"
        else:
            continue
        yield finding(facts.folder, OTHER_ITEMS, file, what, line=line, pointer=pointer)


def _items(facts: Facts, what: str, *, expected: str, pointer: str) -> Problem:
    return finding(facts.folder, OTHER_ITEMS, layout.EVAL_SUMMARY, what, expected=expected, pointer=pointer)


def _base(facts: Facts) -> int | None:
    """Return the parameters of the model without what was added to it; None where few bits hold several of them."""
    if facts.model is None or facts.training is None:
        return None
    if ((facts.config or {}).get("method") or {}).get("base", "plain") != "plain":
        return None
    added = facts.model["trainable_parameters"] if facts.has_adapters else 0
    return int(facts.model["parameters"] - added)


def _plain_rows(facts: Facts) -> bool:
    """Return whether training examples are the dataset's rows as the built-in tokenizer writes them."""
    data = (facts.config or {}).get("data", {})
    is_built_in = facts.model is not None and built_in.model(facts.model["name"]) is not None
    return is_built_in and data.get("kind", "rows") == "rows" and facts.is_supervised


def _table(dataset: Document) -> Document | None:
    if not dataset["generated_rows"] or dataset["generator_seed"] is None:
        return None
    found_table = built_in.generated_counts(dataset["name"], dataset["generated_rows"], dataset["generator_seed"])
    return dict(found_table) if found_table else None


CHECKS = (
    dataset_is_the_built_in_one,
    items_are_the_built_in_ones,
    model_is_the_built_in_one,
    model_has_its_published_size,
    model_has_its_published_family,
    examples_are_rows_of_the_dataset,
    generated_rows_follow_from_the_seed,
    start_weights_follow_from_the_seed,
)
