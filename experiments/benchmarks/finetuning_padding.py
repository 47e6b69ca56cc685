"""How much of fine-tuning's batches is padding, and what less of it would save.

    python -m experiments.benchmarks.finetuning_padding --vocab=vocab.txt \
        --data sst2=glue_data/SST-2 mnli=glue_data/MNLI [--batch=32] [--output=JSON]

A file in place of a folder holds a header and lines of an index, a text, a second text
and a label, with tabs between. The batches are those that a run trains on, of one
epoch, each padded to its longest row. Nothing is trained: the gains compare FLOPs, of
the encoder's matrix products (`encoder_flops`).

- `none`: if every row were computed at its own length: what nothing can exceed
- `packed`: the batch's texts in shared rows, longest first, each in the first row that
  has room; rows of the length that costs least, their number rounded up to a multiple
  of an eighth of the batch, for few compilations
- `2 parts`, `4 parts`: the batch sorted by length and cut, each part padded to its own
  longest; their gradients are added
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from bert_jax import tasks
from bert_jax.config import configuration
from bert_jax.data.rows import LENGTHS, padded_length
from bert_jax.errors import UserError
from bert_jax.models.config import encoder_flops
from bert_jax.runtime.terminal import table
from bert_jax.tasks.finetuning import Finetuning
from experiments.benchmarks import measuring

MODULE = "experiments.benchmarks.finetuning_padding"
HEADER = (
    *("task", "texts", "tokens", "padded to", "padding"),
    *("none", "packed", "2 parts", "4 parts"),
)


def make_task(name: str, data: str, options: argparse.Namespace) -> Finetuning:
    """A task with its training data.

    Raises:
      UserError: the data are wrong.
    """
    fields = {"tokenizer.vocab_file": options.vocab, "train.batch_size": options.batch}
    spec = f"configs/finetune/glue.py:task={name},size={options.size}"
    if Path(data).is_file():
        with open(data, encoding="utf-8") as file:
            columns = file.readline().rstrip("\n").split("\t")
        if len(columns) != 4:
            raise UserError(f"{data}:1: {len(columns)} columns; give four, see --help")
        named = zip(("text", "text_b", "label"), columns[1:], strict=True)
        fields |= {f"task.{field}": column for field, column in named}
        fields |= {"task.train_file": data, "task.max_seq_length": options.length}
        spec = f"configs/finetune/text.py:size={options.size}"
    else:
        fields |= {"task.data_dir": data, "task.max_seq_length": options.length}
    config = configuration.load(spec, [f"--config.{k}={v}" for k, v in fields.items()])
    task = tasks.create(config)
    task.resolve()
    assert isinstance(task, Finetuning)
    return task


def lengths(task: Finetuning, batch: int) -> list[Int[np.ndarray, "batch"]]:
    """The tokens of each row, of an epoch's batches."""
    count = max(1, task.training_data().epoch_size // batch)
    batches = task.batches(0, np.arange(batch), task.config.seed)
    return [one["input_mask"].sum(axis=1) for one in islice(batches, count)]


def packed_rows(sizes: Int[np.ndarray, "batch"], length: int) -> int:
    """The rows of `length` that texts of these sizes fill, the longest first."""
    room: list[int] = []
    for size in sorted(sizes.tolist(), reverse=True):
        place = next((i for i, left in enumerate(room) if left >= size), None)
        if place is None:
            room.append(length - size)
        else:
            room[place] -= size
    return len(room)


Cost = Callable[[int], float]  # FLOPs of a row of some length


def padded(
    sizes: Int[np.ndarray, "batch"], limit: int, cost: Cost, parts: int
) -> float:
    """FLOPs of a batch in parts of equal size, each padded to its longest row."""
    groups = np.split(np.sort(sizes), parts)
    return sum(len(one) * cost(padded_length(int(one[-1]), limit)) for one in groups)


def packed(sizes: Int[np.ndarray, "batch"], limit: int, cost: Cost) -> float:
    """FLOPs of a batch in shared rows of the length that costs least."""
    unit = max(1, len(sizes) // 8)
    return min(
        -(-packed_rows(sizes, length) // unit) * unit * cost(length)
        for length in (*(n for n in LENGTHS if sizes.max() <= n < limit), limit)
    )


def measure(name: str, data: str, options: argparse.Namespace) -> dict[str, Any]:
    """A task's shares and gains."""
    task = make_task(name, data, options)
    batches = lengths(task, options.batch)
    limit = task.config.task.max_seq_length
    cost = partial(encoder_flops, task.model_config)
    positions = sum(
        len(sizes) * padded_length(int(sizes.max()), limit) for sizes in batches
    )
    now = sum(padded(sizes, limit, cost, 1) for sizes in batches)
    best = sum(cost(int(size)) for sizes in batches for size in sizes)
    tokens, texts = sum(int(x.sum()) for x in batches), sum(map(len, batches))
    return {
        "task": name,
        "texts": texts,
        "tokens": tokens / texts,
        "padded": positions / texts,
        "padding": 1 - tokens / positions,
        "none": now / best,
        "packed": now / sum(packed(sizes, limit, cost) for sizes in batches),
        "parts": {
            str(parts): now / sum(padded(x, limit, cost, parts) for x in batches)
            for parts in (2, 4)
        },
    }


def row(found: dict[str, Any]) -> tuple[str, ...]:
    """A task's line of the table."""
    gains = (found["none"], found["packed"], *found["parts"].values())
    return (
        found["task"],
        f"{found['texts']:,}",
        f"{found['tokens']:.1f}",
        f"{found['padded']:.1f}",
        f"{found['padding']:.0%}",
        *(f"{gain:.2f} x" for gain in gains),
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--data", nargs="+", required=True, metavar="TASK=FOLDER")
    parser.add_argument("--size", default="base")
    parser.add_argument("--batch", type=int, default=32, help="a multiple of 4")
    parser.add_argument("--length", type=int, default=128, help="the maximum")
    parser.add_argument("--output", default="", help="JSON")
    options = parser.parse_args(arguments)
    if options.batch < 4 or options.batch % 4:
        raise UserError(f"--batch={options.batch}: give a multiple of 4")
    facts = measuring.begin(MODULE, arguments, ("numpy", "tokenizers"))
    found = []
    for one in options.data:
        name, equals, data = one.partition("=")
        if not equals:
            raise UserError(f"--data {one}: write TASK=FOLDER")
        found.append(measure(name, data, options))
    measuring.write(options.output, {**facts, "tasks": found})
    print(f"\n{table([row(one) for one in found], HEADER)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
