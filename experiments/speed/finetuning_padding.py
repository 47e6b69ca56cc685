"""How much of fine-tuning's batches is padding, and what less of it would save.

    python -m experiments.speed.finetuning_padding --vocab=vocab.txt \
        --data sst2=glue_data/SST-2 mnli=glue_data/MNLI [--batch=32] [--output=JSON]

A file in place of a folder holds a header and lines of an index, a text, a second text
and a label, with tabs between. The batches are those that a run trains on, of one
epoch, each padded to its longest row. Nothing is trained: the gains compare FLOPs, of
the encoder's matrix products (`encoder_flops`).

- `none`: if every row were computed at its own length: what nothing can exceed
- `2 texts`, `4 texts`, `8 texts`: with so many `task.texts_per_row`
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
from bert_jax.data.packing.rows import grouped, row_length
from bert_jax.data.rows import padded_length
from bert_jax.errors import UserError
from bert_jax.models.config import encoder_flops
from bert_jax.runtime.terminal import table
from bert_jax.tasks.finetuning import Finetuning
from experiments.speed import measuring

MODULE = "experiments.speed.finetuning_padding"
SHARED = (2, 4, 8)  # texts in a row
HEADER = (
    *("task", "texts", "tokens", "padded to", "padding"),
    *("none", *(f"{texts} texts" for texts in SHARED)),
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


def batch_cost(
    sizes: Int[np.ndarray, "batch"],
    limit: int,
    texts: int,
    cost: Callable[[int], float],
) -> float:
    """What a batch costs with so many texts a row.

    Args:
      limit: tokens of a text.
      cost: of a row of some length.
    """
    length = row_length(sizes, grouped(sizes, texts), limit)
    return len(sizes) // texts * cost(length)


def measure(name: str, data: str, options: argparse.Namespace) -> dict[str, Any]:
    """A task's shares and gains."""
    task = make_task(name, data, options)
    batches = lengths(task, options.batch)
    limit = task.config.task.max_seq_length
    cost = partial(encoder_flops, task.model_config)
    positions = sum(
        len(sizes) * padded_length(int(sizes.max()), limit) for sizes in batches
    )
    total = {
        texts: sum(batch_cost(sizes, limit, texts, cost) for sizes in batches)
        for texts in (1, *SHARED)
    }
    best = sum(cost(int(size)) for sizes in batches for size in sizes)
    tokens, texts = sum(int(x.sum()) for x in batches), sum(map(len, batches))
    return {
        "task": name,
        "texts": texts,
        "tokens": tokens / texts,
        "padded": positions / texts,
        "padding": 1 - tokens / positions,
        "none": total[1] / best,
        "texts_per_row": {str(n): total[1] / total[n] for n in SHARED},
    }


def row(found: dict[str, Any]) -> tuple[str, ...]:
    """A task's line of the table."""
    gains = (found["none"], *found["texts_per_row"].values())
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
    parser.add_argument("--batch", type=int, default=32, help="a multiple of 8")
    parser.add_argument("--length", type=int, default=128, help="the maximum")
    parser.add_argument("--output", default="", help="JSON")
    options = parser.parse_args(arguments)
    if options.batch < 8 or options.batch % 8:
        raise UserError(f"--batch={options.batch}: give a multiple of 8")
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
