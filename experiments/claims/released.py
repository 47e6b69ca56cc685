"""Fine-tuning of a released encoder here and by torch `transformers`' Trainer.

    python -m experiments.claims.released --weights=FOLDER --data=glue_data \
        --results=DIR [--tasks=cola,mrpc,rte,stsb] [--seeds=0,1,2] [--rate=5e-5] \
        [--epochs=1]

Both sides have the same rows, lengths, peak rate, optimizer (AdamW) and batch size. Two
differences are left, because each side does as its users have it. The Trainer's decay
starts at the end of the warm-up, BERT's at step 0, so that its rates are 1 / 0.9 of
these. And the Trainer takes the last rows, which are fewer than a batch, as a step.

Each run is a program of its own, whose processor time includes its start and its
compilation. DIR keeps each run's result, so that the same command goes on where it was
stopped. Needs the `parity` extra and accelerate.
"""

import csv
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from sklearn import metrics

from bert_jax.commands import command_line, report
from bert_jax.convert import weights
from bert_jax.runtime.terminal import format_table

_BATCH, _LENGTH, _WARMUP, _EPSILON = 32, 128, 0.1, 1e-8


class Glue(NamedTuple):
    """A task of GLUE: its folder, columns, labels and score."""

    folder: str
    texts: tuple[int, ...]
    label: int
    names: tuple[str, ...]  # none for regression
    has_header: bool
    score: str

    def read(self, data: Path, split: str) -> list[tuple[list[str], float]]:
        """Returns each row's texts and label."""
        path = data / self.folder / f"{split}.tsv"
        text = path.read_text("utf-8-sig").rstrip("\n")
        rows = csv.reader(text.split("\n"), delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            ([row[column] for column in self.texts], self._number(row[self.label]))
            for row in list(rows)[self.has_header :]
        ]

    def _number(self, label: str) -> float:
        return self.names.index(label) if self.names else float(label)


TASKS = {
    "cola": Glue("CoLA", (3,), 1, ("0", "1"), False, "matthews"),
    "mrpc": Glue("MRPC", (3, 4), 0, ("0", "1"), True, "f1"),
    "rte": Glue("RTE", (1, 2), 3, ("entailment", "not_entailment"), True, "accuracy"),
    "stsb": Glue("STS-B", (7, 8), 9, (), True, "spearman"),
}


def run_ours(options: Any, task: str, seed: int) -> dict[str, float]:
    """Fine-tunes with this code. Returns the dev scores."""
    family = weights.find_source(options.weights).family.name
    fields = {
        "init_from": options.weights,
        "task.data_dir": Path(options.data, TASKS[task].folder),
        "task.max_seq_length": _LENGTH,
        "optimizer.name": "adamw",
        "optimizer.learning_rate": options.rate,
        "optimizer.eps": _EPSILON,
        "optimizer.warmup_fraction": _WARMUP,
        "train.batch_size": _BATCH,
        "train.num_epochs": options.epochs,
        "evaluate.splits": "('dev',)",
        "seed": seed,
    }
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                *(sys.executable, "-m", "bert_jax.main", f"--workdir={folder}/run"),
                f"--config=configs/finetune/glue.py:task={task},model={family}",
                *(f"--config.{name}={value}" for name, value in fields.items()),
            ],
            check=True,
        )
        lines = Path(folder, "run", "metrics.jsonl").read_text().splitlines()
    (*_, scores) = (x for x in map(json.loads, lines) if x["split"] == "dev")
    return {TASKS[task].score: scores[TASKS[task].score]}


def run_theirs(options: Any, task: str, seed: int) -> dict[str, float]:
    """Does the same in a program of `transformers`."""
    command = [sys.executable, "-m", "experiments.claims.released"]
    command += [f"--weights={options.weights}", f"--data={options.data}"]
    command += [f"--rate={options.rate}", f"--epochs={options.epochs}"]
    command += [f"--one={task}", f"--seeds={seed}"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    scores: dict[str, float] = json.loads(printed.stdout.splitlines()[-1])
    return scores


def train_with_torch(options: Any, task: str, seed: int) -> dict[str, float]:
    """Fine-tunes with transformers' Trainer. Returns the dev scores."""
    import transformers

    glue, data = TASKS[task], Path(options.data)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.weights)

    def encoded(split: str) -> list[dict[str, Any]]:
        kind: Any = int if glue.names else float
        return [
            {
                **tokenizer(*texts, truncation=True, max_length=_LENGTH),
                "labels": kind(x),
            }
            for texts, x in glue.read(data, split)
        ]

    transformers.set_seed(seed)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        options.weights, num_labels=max(len(glue.names), 1)
    )
    rows: Any = encoded("train")
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            folder,
            per_device_train_batch_size=_BATCH,
            per_device_eval_batch_size=_BATCH,
            num_train_epochs=options.epochs,
            learning_rate=options.rate,
            warmup_steps=math.ceil(_WARMUP * options.epochs * len(rows) / _BATCH),
            weight_decay=0.01,
            adam_epsilon=_EPSILON,
            seed=seed,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        collator = transformers.DataCollatorWithPadding(tokenizer)
        trainer = transformers.Trainer(
            model, settings, train_dataset=rows, data_collator=collator
        )
        trainer.train()
        rows = encoded("dev")
        dev: Any = trainer.predict(rows)
    return {glue.score: score(glue.score, dev.predictions, dev.label_ids)}


def score(name: str, outputs: np.ndarray, gold: np.ndarray) -> float:
    """Computes a task's score from a model's outputs [rows, labels]."""
    if name == "spearman":
        return float(stats.spearmanr(outputs.ravel(), gold).statistic)
    functions = {
        "matthews": metrics.matthews_corrcoef,
        "f1": metrics.f1_score,
        "accuracy": metrics.accuracy_score,
    }
    return float(functions[name](gold, outputs.argmax(axis=-1)))


SIDES = {"bert_jax": run_ours, "transformers": run_theirs}


def finished_runs(options: Any) -> Iterator[dict[str, Any]]:
    """Yields each run's result, of earlier commands too."""
    for seed in map(int, options.seeds.split(",")):
        for task in options.tasks.split(","):
            for side, run in SIDES.items():
                path = Path(options.results, f"{task}-{seed}-{side}.json")
                if not path.exists():
                    before, start = processor_seconds(), time.monotonic()
                    scores = run(options, task, seed)
                    seconds = processor_seconds() - before
                    clock = time.monotonic() - start
                    path.parent.mkdir(parents=True, exist_ok=True)
                    result = {"scores": scores, "processor": seconds, "clock": clock}
                    path.write_text(json.dumps(result) + "\n")
                result = json.loads(path.read_text())
                yield {"task": task, "seed": seed, "side": side, **result}


def processor_seconds() -> float:
    """Returns the processor time of the programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def interval(values: Sequence[float]) -> str:
    """Returns mean and 95% interval (Student's t), or the only value."""
    if len(values) == 1:
        return f"{values[0]:.4f}"
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return f"{np.mean(values):.4f} +- {half:.4f}"


def table_rows(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Returns a row for each task and side: its scores and processor time."""
    rows: list[tuple[str, ...]] = []
    for task, side in dict.fromkeys((x["task"], x["side"]) for x in runs):
        own = [x for x in runs if (x["task"], x["side"]) == (task, side)]
        name = TASKS[task].score
        scores = [x["scores"][name] for x in own]
        seconds = np.mean([x["processor"] for x in own])
        every = " ".join(f"{x:.4f}" for x in scores)
        rows.append((task, name, side, interval(scores), every, f"{seconds:.0f}"))
    return rows


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Runs what is missing, prints the table and returns the exit status."""
    parser = command_line.Parser("experiments.claims.released", __doc__)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--results", default="", help="a folder")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--one", default="", help="run a task with transformers only")
    options = parser.parse_args(argv)
    if options.one:
        scores = train_with_torch(options, options.one, int(options.seeds))
        print(json.dumps(scores))
        return 0
    facts = report.facts("experiments.claims.released", argv)
    print(report.introduction(facts), flush=True)
    header = ("task", "score", "side", "dev", "seeds", "processor seconds")
    print(format_table(table_rows(list(finished_runs(options))), header))
    return 0


if __name__ == "__main__":
    command_line.start(main)
