"""How fast texts of mixed lengths are classified and encoded, beside `transformers`.

    python -m experiments.benchmarks.inference --vocabulary=vocab.txt \
        --texts reviews.jsonl [...] [--layers=4] [--hidden=256] [--json=FILE]

The texts are the `text` fields of JSON lines (`text_b`, where there is one, is joined),
in a random order. Both sides have the same random weights and the same batch size;
texts are cut at 512 tokens; compiling and a first round are not counted. The sides take
turns, and a figure is the median of the rounds. `predict` is beside the pipeline
`text-classification`, with the rows as they come and sorted by the caller; `encode`
beside the model itself, called by a caller who sorts."""

import argparse
import json
import platform
import random
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import transformers
from ml_collections import ConfigDict

import bert_jax
from bert_jax import predict, tokenization
from bert_jax.config import configuration
from bert_jax.runtime import storage
from bert_jax.training import asked, initial
from bert_jax.training.evaluator import submitting
from experiments.benchmarks.measuring import processor

MODULE = "experiments.benchmarks.inference"
LIMIT = 512  # tokens
CONFIG = Path(__file__).resolve().parents[2] / "configs" / "finetune" / "text.py"


def make_model(args: argparse.Namespace, folder: Path) -> None:
    """Writes a classifier with random weights, and a tokenizer."""
    library: Any = transformers  # its types lack the class
    tokenizer = library.BertTokenizerFast(args.vocabulary, model_max_length=LIMIT)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=args.hidden // 64,
        intermediate_size=4 * args.hidden,
        initializer_range=0.05,  # answers that differ from text to text
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def read_texts(args: argparse.Namespace) -> list[str]:
    """The texts, cut where the model would be at its limit."""
    texts = []
    for name in args.texts:
        for line in Path(name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            texts.append(" ".join(row[x] for x in ("text", "text_b") if x in row))
    random.Random(0).shuffle(texts)
    tokenizer = tokenization.load(args.vocabulary)
    cut = []
    for text in texts[: args.rows]:
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        end = offsets[: LIMIT - 2][-1][1] if offsets else 0
        cut.append(text[:end])
    return cut


class Ours:
    """`--mode=predict` without its files, and `encode`."""

    def __init__(self, folder: Path, batch: int):
        fields = {"init_from": folder, "predict.batch_size": batch}
        fields["task.max_seq_length"] = LIMIT
        overrides = [f"--config.{name}={value}" for name, value in fields.items()]
        given: ConfigDict = configuration.load(str(CONFIG), overrides)
        nowhere = storage.path(str(folder / "run"))
        config = asked.config(nowhere, given, overrides, asks=True)
        task = initial.resolve(config, nowhere, from_data=False)
        with initial.restored(task, nowhere, task.unused(predicts=True)) as found:
            self._predictor = task.predictor(found.missing)
            self._size = batch
            self._submit = submitting(
                self._predictor.step, found.params, found.mesh, batch
            )
        self._bert = bert_jax.load(folder)

    def classify(self, texts: list[str]) -> list[str]:
        lines = [(f"row {n}", json.dumps({"text": t})) for n, t in enumerate(texts)]
        answers = predict.answered(lines, self._predictor, self._submit, self._size)
        return [json.loads(line)["label"] for some in answers for line in some]

    def encode(self, texts: list[str]) -> Any:
        return self._bert.encode(texts).pooled


class Theirs:
    """`transformers`, as its documentation says to use it."""

    def __init__(self, folder: Path, batch: int):
        self._pipeline: Any = transformers.pipeline(
            "text-classification", str(folder), device="cpu", batch_size=batch
        )
        self._tokenizer: Any = self._pipeline.tokenizer
        self._model: Any = self._pipeline.model
        self._batch = batch

    def classify(self, texts: list[str]) -> list[str]:
        return [row["label"] for row in self._pipeline(texts, truncation=True)]

    def classify_sorted(self, texts: list[str]) -> list[str]:
        return self._by_length(texts, self.classify)

    def encode_sorted(self, texts: list[str]) -> Any:
        return self._by_length(texts, self._encode)

    def _by_length(self, texts: list[str], function: Callable) -> list:
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        answers = function([texts[index] for index in order])
        found = dict(zip(order, answers, strict=True))
        return [found[index] for index in range(len(texts))]

    def _encode(self, texts: list[str]) -> list:
        found: list = []
        with torch.inference_mode():
            for first in range(0, len(texts), self._batch):
                some = texts[first : first + self._batch]
                inputs = self._tokenizer(
                    some, padding=True, truncation=True, return_tensors="pt"
                )
                found += self._model.bert(**inputs).pooler_output
        return found


def seconds(cases: dict[str, Callable], texts: list[str], rounds: int) -> dict:
    """The median time of each case; the first round is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, function in cases.items():
            start = time.perf_counter()
            function(texts)
            if turn:
                taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", required=True)
    parser.add_argument("--texts", nargs="+", required=True)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256, help="a multiple of 64")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="a file to write the figures to")
    args = parser.parse_args()
    texts = read_texts(args)
    with tempfile.TemporaryDirectory() as name:
        make_model(args, Path(name))
        ours, theirs = Ours(Path(name), args.batch), Theirs(Path(name), args.batch)
        one, other = ours.classify(texts), theirs.classify(texts)
        alike = sum(a == b for a, b in zip(one, other, strict=True)) / len(texts)
        mixed = {
            "predict": ours.classify,
            "pipeline": theirs.classify,
            "pipeline, sorted by its caller": theirs.classify_sorted,
            "encode": ours.encode,
            "model, sorted by its caller": theirs.encode_sorted,
        }
        took = seconds(mixed, texts, args.rounds)
        single = Ours(Path(name), 1), Theirs(Path(name), 1)
        short = sorted(texts, key=len)[len(texts) // 2 :][:1]
        alone = {"predict": single[0].classify, "pipeline": single[1].classify}
        latency = seconds(alone, short, 10 * args.rounds)
    figures: dict[str, Any] = {
        "command": f"python -m {MODULE} {shlex.join(sys.argv[1:])}",
        "date": str(date.today()),
        "hardware": f"{processor()}, {torch.get_num_threads()} threads",
        "versions": {"python": platform.python_version()}
        | {name: metadata.version(name) for name in ("jax", "torch", "transformers")},
        "model": f"{args.layers} layers of {args.hidden}",
        "same_label": alike,
        "rows_per_second": {name: len(texts) / value for name, value in took.items()},
        "milliseconds_at_batch_1": {name: 1e3 * x for name, x in latency.items()},
    }
    for name in ("command", "date", "hardware", "versions", "model"):
        print(f"{name:10} {figures[name]}")
    print(
        f"the same label for {alike:.1%} of {len(texts)} rows, batches of {args.batch}"
    )
    for name, value in figures["rows_per_second"].items():
        print(f"  {name:32}{value:9.1f} rows/s")
    print("one row of middling length")
    for name, value in figures["milliseconds_at_batch_1"].items():
        print(f"  {name:32}{value:9.2f} ms")
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
