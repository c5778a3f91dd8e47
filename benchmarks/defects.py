"""CPU seconds and memory that an earlier version wasted, before and after: writes `results/trainer_defects.json`.

`python -m benchmarks.defects OLD` compares this tree with a checkout of commit `d3d1d486` in the folder OLD. Each
measurement runs in a process of its own. Run it on an idle machine; only the ratios are meaningful elsewhere.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "trainer_defects.json"
REPEATS = 3
TITLES = {
    "stop_token": "200 reads of the token that ends an answer, 6,000 added tokens",
    "tokens_before": "2,000 counts of the tokens before a step, 200,000 rows",
    "rows": "read, check, encode and batch 4,000 rows of a file that is kept on disk",
    "batches": "50 batches of 64 sequences of 2,048 tokens",
    "metric_rows": "memory that a recorder holds after 50,000 rows",
}
MEMORY = ("metric_rows",)
"""Measurements in MiB; the others are CPU seconds."""

PROGRAM = r"""
import json, sys, tempfile, time
from pathlib import Path
import numpy as np

def new(): return (Path(sys.argv[2]) / "trainer/data/conversations.py").exists()

def stop_token():
    from transformers import AutoTokenizer
    from trainer.model.tokenizer import FOLDER
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    tokenizer.add_tokens([f"<extra_{number}>" for number in range(6000)], special_tokens=True)
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<extra_7>{% endfor %}"
    if new():
        from trainer.data.conversations import PromptForm, end_token_id
    else:
        from trainer.data.encode import end_token_id
        from trainer.data.render import PromptForm
    form = PromptForm(conversation=True)
    end_token_id(tokenizer, form)
    return lambda: [end_token_id(tokenizer, form) for _ in range(200)]

def source(rows, length, batch, examples=None):
    if new():
        from trainer.data.batches import RowSource, one_each
        from trainer.data.encode import collate as laid_out
    else:
        from trainer.data.packing import one_each
        from trainer.data.source import RowSource
        from trainer.data.files.encoded import laid_out
    def collate(sequences, length):
        tokens, mask, _ = laid_out(sequences, length)
        return {"tokens": tokens, "mask": mask}
    lengths = np.full(rows, length)
    return RowSource(examples=examples, sequences=one_each(rows), lengths=lengths, widths=lengths, collate=collate,
        shapes=(length,), batch_size=batch, accumulation_steps=1, seed=0, shuffle=True)

def tokens_before():
    one = source(200_000, 100, 64)
    return lambda: [one.tokens_before(step) for step in range(2000)]

def batches():
    if new():
        from trainer.data.encode import EncodedRow
        from trainer.data.files import StoredSequence as TokenFile
        ids = np.arange(2048, dtype=np.int32)
    else:
        from trainer.data.files.encoded import EncodedRow, TokenFile
        ids = tuple(range(2048))
    examples = TokenFile(EncodedRow(token_ids=ids, spans=((5, 2048),), truncated=False, row=n) for n in range(256))
    one = source(256, 2048, 64, examples)
    return lambda: [one.batch(step) for step in range(50)]

def rows():
    import trainer.data.rows as module
    module.LARGEST_IN_MEMORY = 0  # of the old tree
    from trainer.config.tree import Config, DataConfig, ModelConfig
    from trainer.methods.model import read_model
    if new():
        from trainer.objectives import build_objective
    else:
        from trainer.objectives import objective_of as build_objective
    from trainer.objectives.data import read_data
    path = Path(tempfile.mkdtemp()) / "rows.jsonl"
    path.write_text("".join(json.dumps({"messages": [
        {"role": "user", "content": f"What is {n} plus one?"}, {"role": "assistant", "content": f"It is {n + 1}."}]})
        + "\n" for n in range(4000)))
    config = Config(model=ModelConfig(name="tiny-gpt2"), data=DataConfig(dataset=str(path), max_length=128))
    model = read_model(config, [])
    def run():
        problems = []
        data = read_data(config, model, build_objective(config), problems, devices=1)
        data.document()
        assert not problems
    return run

def metric_rows():
    import tracemalloc
    from trainer.recorder.recorder import Recorder
    recorder = Recorder(Path(tempfile.mkdtemp()) / "run", say=print)
    recorder.folder.mkdir()
    def run():
        with recorder:
            tracemalloc.start()
            for step in range(1, 50_001):
                figures = ["grad_norm", "step_seconds", "tokens_per_second", "padding_fraction", "learning_rate"]
                recorder.metric({"step": step, "loss": 1.0 + 1 / step, **{name: step / 7 for name in figures}})
            return tracemalloc.get_traced_memory()[0] / 2**20
    return run

work = globals()[sys.argv[1]]()
start = time.process_time()
held = work()
print(held if isinstance(held, float) else time.process_time() - start)
"""


def measure(name: str, tree: Path) -> float:
    """Return the CPU seconds or MiB of a measurement in a source tree: the least of several processes."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, name, str(tree)]
    runs = [
        subprocess.run(command, env=environment, cwd=tree, check=True, capture_output=True, text=True)
        for _ in range(REPEATS)
    ]
    return min(float(each.stdout.split()[-1]) for each in runs)


def main(old: Path, *names: str) -> None:
    """Measure both trees, print the ratios, and write the result; `names` limits the measurements."""
    here = Path(__file__).resolve().parents[1]
    found = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {"measurements": {}}
    for name, title in TITLES.items():
        if names and name not in names:
            continue
        before, after, unit = measure(name, old), measure(name, here), "mib" if name in MEMORY else "seconds"
        ratio = round(before / after, 1)
        values = {f"before_{unit}": round(before, 4), f"after_{unit}": round(after, 4), "ratio": ratio}
        found["measurements"][name] = {"title": title, **values}
        print(f"{ratio:8.1f} x  {before:8.3f}  {after:8.3f} {unit}  {title}")
    found["machine"] = {"cpu": platform.processor() or platform.machine(), "count": os.cpu_count()}
    found["versions"] = {name: version(name) for name in ("numpy", "transformers", "tokenizers")}
    found["versions"]["python"] = platform.python_version()
    found["before"] = "d3d1d486"
    RESULT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), *sys.argv[2:])
