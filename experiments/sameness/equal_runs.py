"""The same run on other meshes and process counts: the same losses, the same scores.

    python -m experiments.sameness.equal_runs --output=FOLDER [--task=squad,pairs]

Three small runs of 30 steps, with dropout (pre-training, pairs of texts with a class,
questions with spans), each on one device, on eight simulated devices in six meshes, and
in two and four processes on this machine. Then pre-training is stopped by a signal to
one process and resumes elsewhere, for four pairs of setups. It prints the largest
differences from the run on one device, and counts how often each training row was
handed out in each epoch. The exit status is 1 where they are not the same.

FOLDER keeps data and runs. Finished runs in it are not repeated.
"""

import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.commands import command_line, runner
from bert_jax.commands.command_line import Parser, several
from bert_jax.runtime import terminal
from bert_jax.workdir import metrics

STEPS, BATCH, STOP = 30, 16, 13

# What every run has, and each task: its config in configs/, and more fields.
FIELDS = f"""
    model.hidden_size=32 model.num_hidden_layers=2 model.num_attention_heads=8
    model.intermediate_size=64 model.max_position_embeddings=48
    train.num_steps={STEPS} train.batch_size={BATCH} train.log_every=1
    evaluate.batch_size={BATCH} checkpoint.save_every=10
"""
CONFIGS = {
    "pretraining": """
        tiny.py:recipe=plain
        corpus.sources=('sentences:FOLDER/corpus.txt',) corpus.data_dir=FOLDER/data
        corpus.max_seq_length=32 corpus.dev_fraction=0.2 tokenizer.vocab_size=64
        masking.max_predictions_per_seq=6
        model.hidden_dropout_prob=0.1 model.attention_probs_dropout_prob=0.1
    """,
    "pairs": """
        finetune/text.py:recipe=tiny tokenizer.vocab_file=FOLDER/vocab.txt
        task.train_file=FOLDER/pairs-train.jsonl task.dev_file=FOLDER/pairs-dev.jsonl
        task.text_b=text_b task.max_seq_length=48 optimizer.learning_rate=1e-3
    """,
    "squad": """
        finetune/squad.py:recipe=tiny tokenizer.vocab_file=FOLDER/vocab.txt
        task.train_file=FOLDER/squad-train.json task.dev_file=FOLDER/squad-dev.json
        task.max_seq_length=32 task.doc_stride=12 task.max_query_length=10
        optimizer.learning_rate=1e-3
    """,
}

# Several processes of one run: how many, the devices of each, their program.
_LOCAL = """
import sys
from bert_jax.runtime.cluster import local
sys.exit(local.run_processes(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
"""


class Place(NamedTuple):
    """Where a run is: processes, the devices of each, and the mesh."""

    processes: int
    devices: int
    data: int = 1
    fsdp: int = 1
    tensor: int = 1

    def __str__(self) -> str:
        return (
            f"{self.processes} x {self.devices}: data={self.data} fsdp={self.fsdp} "
            f"tensor={self.tensor}"
        )


ONE = Place(1, 1)
PLACES = (
    ONE,
    Place(1, 8, data=8),
    Place(1, 8, fsdp=8),
    Place(1, 8, tensor=8),
    Place(1, 8, data=2, fsdp=2, tensor=2),
    Place(1, 8, data=4, tensor=2),
    Place(1, 8, fsdp=4, tensor=2),
    Place(2, 2, data=2, tensor=2),
    Place(2, 4, data=2, fsdp=2, tensor=2),
    Place(4, 1, data=2, fsdp=2),
    Place(4, 2, fsdp=2, tensor=4),
)
PAIRS = (
    (ONE, Place(1, 8, data=2, fsdp=2, tensor=2)),
    (Place(1, 8, fsdp=8), Place(2, 2, data=2, tensor=2)),
    (Place(2, 2, data=2, fsdp=2), ONE),
    (Place(4, 1, fsdp=4), Place(2, 4, data=4, tensor=2)),
)


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    parser = Parser("experiments.sameness.equal_runs", __doc__)
    parser.add_argument("--output", type=Path, required=True)
    names = several(str, CONFIGS)
    parser.add_argument("--task", default=",".join(CONFIGS), type=names)
    options = parser.parse_args(argv)
    folder = options.output.absolute()
    write_data(folder)
    same = True
    for task in options.task:
        rows = []
        for place in PLACES:
            workdir = folder / f"{task} {place}".replace(" ", "_")
            run(folder, task, place, workdir)
            rows.append((str(place), *compare(workdir, base(folder, task))))
            same &= is_same(rows[-1])
        show(f"{task}, {STEPS} steps", rows)
    rows = []
    for before, after in PAIRS if "pretraining" in options.task else ():
        workdir = folder / f"{before} to {after}".replace(" ", "_")
        if not finished(workdir):
            run(folder, "pretraining", before, workdir, stop=STOP)
        run(folder, "pretraining", after, workdir)
        found = compare(workdir, base(folder, "pretraining"))
        rows.append((f"{before} -> {after}", *found))
        same &= is_same(rows[-1])
    if rows:
        show(f"pretraining, stopped at step {STOP + 1} or so and gone on", rows)
    return 0 if same else 1


def run(folder: Path, task: str, at: Place, workdir: Path, stop: int = -1) -> None:
    """Runs, unless it is done. The run's output goes to its folder's `log`."""
    if finished(workdir):
        return
    (workdir / "handed_out").mkdir(parents=True, exist_ok=True)
    spec, *fields = f"{CONFIGS[task]} {FIELDS}".split()
    fields += [f"mesh.{axis}={getattr(at, axis)}" for axis in at._fields[2:]]
    arguments = [f"--config={runner.ROOT}/configs/{spec}", f"--workdir={workdir}"]
    arguments += [f"--config.{x}".replace("FOLDER", str(folder)) for x in fields]
    program = [sys.executable, "-m", "experiments.sameness.recorded_run"]
    program += [str(workdir / "handed_out"), str(stop), "--", *arguments]
    start = [sys.executable, "-c", _LOCAL, str(at.processes), str(at.devices)]
    status = runner.wait([*start, *program], workdir / "log")
    expected = 0 if stop < 0 else 143
    if status != expected:
        sys.exit(f"{workdir}/log: status {status}, not {expected}")


def finished(workdir: Path) -> bool:
    dev = metrics.read_metrics(workdir, "dev")
    return bool(dev) and dev[-1]["step"] == len(losses(workdir)) == STEPS


def base(folder: Path, task: str) -> Path:
    """Returns the run that the others are compared with."""
    return folder / f"{task} {ONE}".replace(" ", "_")


def losses(workdir: Path) -> np.ndarray:
    """Reads the loss of each step, all of them there once and in order."""
    lines = metrics.read_metrics(workdir, "train")
    steps = [line["step"] for line in lines]
    assert steps == list(range(1, len(steps) + 1)), f"{workdir}: steps {steps}"
    return np.array([line["loss"] for line in lines])


def compare(workdir: Path, other: Path) -> tuple[float, float, float, str, str]:
    """Compares two runs.

    Returns:
      Largest relative differences of the first loss, of all, and of the scores, the
      steps and epochs handed out, and how often a row was in an epoch, from least to
      most.
    """
    ours, theirs = losses(workdir), losses(other)
    relative = np.abs(ours - theirs) / np.abs(theirs)
    mine, its = (metrics.read_metrics(path, "dev")[-1] for path in (workdir, other))
    scores = max(
        abs(mine[name] - its[name]) / max(abs(its[name]), 1e-9)
        for name in its.keys() - {"time"}
    )
    steps, least, most, epochs = handed_out(workdir / "handed_out", STEPS, BATCH)
    given = f"{least}-{most}" if least != most else str(least)
    return relative[0], relative.max(), scores, f"{steps}, {epochs}", given


def handed_out(folder: Path, num_steps: int, size: int) -> tuple[int, int, int, int]:
    """Counts steps, and how often a row was handed out in a whole epoch, least and
    most, and whole epochs. Rows of which two processes have a copy count once.

    Args:
      folder: Folder of recorded_run's files.
      num_steps: Number of steps of the run.
      size: Number of rows in a batch.
    """
    batches: dict[int, dict[int, str]] = {}
    for path in sorted(folder.iterdir()):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            batch = batches.setdefault(line["step"], {})
            for place, row in zip(line["places"], line["rows"], strict=True):
                assert batch.setdefault(place, row) == row, f"{path}: {line['step']}"
    assert sorted(batches) == list(range(num_steps)), f"{folder}: {sorted(batches)}"
    for step, batch in batches.items():
        assert sorted(batch) == list(range(size)), f"{folder}: step {step}"
    stream = [batches[i][place] for i in range(num_steps) for place in range(size)]
    every = set(stream)
    epoch = len(every)
    epochs = [stream[i : i + epoch] for i in range(0, len(stream) - epoch + 1, epoch)]
    assert epochs, f"{folder}: no whole epoch"
    counts = [Counter(rows)[row] for rows in epochs for row in every]
    return len(batches), min(counts), max(counts), len(epochs)


def is_same(row: tuple) -> bool:
    _, first, most, scores, _, given = row
    return first <= 1e-6 and most <= 1e-4 and scores <= 1e-4 and given == "1"


def show(title: str, rows: list[tuple]) -> None:
    header = (
        *("processes x devices: mesh", "first loss", "all losses", "dev figures"),
        *("steps, whole epochs", "a row in an epoch"),
    )
    shown = [
        (place, f"{first:.1e}", f"{most:.1e}", f"{scores:.1e}", *counts)
        for place, first, most, scores, *counts in rows
    ]
    print(f"\n{title}: largest relative difference from one device")
    print(terminal.format_table(shown, header), flush=True)


def write_data(folder: Path) -> None:
    """Writes made-up text, of which no two training rows are the same."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
    words += ["while", "seven", "cats", "watch", "it"]
    names = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("an", "el", "ir", "os", "um")]
    with (folder / "corpus.txt").open("w") as file:
        for _ in range(60):
            for _ in range(rng.randint(4, 11)):
                print(" ".join(rng.choices(words, k=rng.randint(3, 8))), file=file)
            print(file=file)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *names]
    pieces += ["where", "is", "in", "."]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    for split, size in (("train", 150), ("dev", 37)):
        pairs = []
        for _ in range(size):
            first, second = rng.choices(names, k=3), rng.choices(names, k=3)
            same = rng.choice(["entailment", "neutral", "contradiction"])
            if same == "entailment":
                second = first[::-1]
            elif same == "contradiction":
                second[0] = "cats"
            filler = rng.choices(words, k=rng.randint(0, 30))
            row = {"text": " ".join(first + filler), "text_b": " ".join(second)}
            pairs.append(json.dumps({**row, "label": same}) + "\n")
        (folder / f"pairs-{split}.jsonl").write_text("".join(pairs))
        paragraphs = []
        for number in range(size):
            some = rng.sample(names, k=8)
            facts = [
                f"{a} is in {b} ." for a, b in zip(some[::2], some[1::2], strict=True)
            ]
            context = " ".join(facts + rng.choices(words, k=rng.randint(0, 16)))
            asked = rng.randrange(4)
            name, place = some[2 * asked : 2 * asked + 2]
            start = context.index(facts[asked]) + len(f"{name} is in ")
            answer = {"text": place, "answer_start": start}
            entry = {"id": f"{split}{number}", "question": f"where is {name}"}
            qas = [{**entry, "answers": [answer]}]
            paragraphs.append({"context": context, "qas": qas})
        data = {"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]}
        (folder / f"squad-{split}.json").write_text(json.dumps(data))


if __name__ == "__main__":
    command_line.start(main)
