"""What packing gains: pre-training on several pairs a row beside one pair and padding.

    python -m experiments.speed.packing --vocabulary=vocab.txt \
        --sources='jsonl:reviews.jsonl' [...] [--size=4/256] [--output=FILE.json]

Both sides train on the same pairs with the run's own step and loader, in turns in one
process, with the same number of rows a step. The fill is that of all training rows; the
pairs and tokens a second are those of the steps taken."""

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from bert_jax.config.phases import phases
from bert_jax.data import loader, prepare
from bert_jax.data.packing import pairs as packing
from bert_jax.data.prepare import Prepared
from bert_jax.runtime.terminal import table
from experiments.lib import ending
from experiments.lib.command_line import Parser
from experiments.speed import measuring, our_step

MODULE = "experiments.speed.packing"
BATCHES = 16  # each side's steps go through so many, again and again
SIDES = {"padded": False, "packed": True}


def make_config(options: argparse.Namespace, packs: bool, folder: str) -> ConfigDict:
    """Pre-training's config of one side."""
    config = our_step.sized_config(options.size, options.length, options.batch)
    config.model.dtype = options.dtype
    config.tokenizer.vocab_file = options.vocabulary
    config.corpus.sources = tuple(options.sources)
    config.corpus.data_dir = folder
    config.corpus.packing = packs
    return config


class Side:
    """The step of one side, and what a step of it holds on average."""

    def __init__(self, config: ConfigDict, data: Prepared):
        (phase,) = phases(config)
        batches = list(islice(loader.batches(config, phase, data, 0), BATCHES))
        config.model.vocab_size = data.tokenizer.get_vocab_size()
        self.step = our_step.OurStep(config, batches)
        self.rows = config.train.batch_size
        self.pairs = np.mean([(x["next_sentence_labels"] >= 0).sum() for x in batches])
        self.tokens = np.mean([x["input_mask"].sum() for x in batches])

    def figures(self, seconds: float) -> dict[str, float]:
        """Rows, pairs and tokens a second, for the seconds of a step."""
        return {
            name: float(getattr(self, name)) / seconds
            for name in ("rows", "pairs", "tokens")
        }


def fills(data: Prepared, length: int) -> dict[str, float]:
    """For each side, the share of all training rows' positions that are tokens."""
    tokens = packing.lengths(data.folder)
    rows = {"padded": len(tokens), "packed": len(packing.rows(data.folder, length))}
    return {name: tokens.sum() / (count * length) for name, count in rows.items()}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of both sides, and how many times as fast packed rows are."""
    with tempfile.TemporaryDirectory() as folder:
        sides = {}
        for name, packs in SIDES.items():
            config = make_config(options, packs, folder)
            data = prepare.prepare(config, options.length)  # the second finds it there
            sides[name] = Side(config, data)
        filled = fills(data, options.length)
        turns = {name: measuring.timed(side.step) for name, side in sides.items()}
        taken = measuring.alternate(turns, options.rounds, options.turn)
    speed = measuring.ratio(taken["padded"], taken["packed"])
    more = sides["packed"].pairs / sides["padded"].pairs
    return {
        "sides": {
            name: {"fill": filled[name], **side.figures(taken[name]["median"])}
            for name, side in sides.items()
        },
        "taken": taken,
        "times_as_many_pairs": {name: each * more for name, each in speed.items()},
    }


HEADER = ("rows", "positions that are tokens", "rows/s", "pairs/s", "tokens/s")


def report(options: argparse.Namespace, found: dict[str, Any]) -> str:
    """The table, and the ratio below it."""
    rows = [
        (
            name,
            f"{side['fill']:.1%}",
            *(f"{side[each]:,.2f}" for each in ("rows", "pairs")),
            f"{side['tokens']:,.0f}",
        )
        for name, side in found["sides"].items()
    ]
    ratio = found["times_as_many_pairs"]
    return (
        f"{table(rows, HEADER)}\n"
        f"packed rows train {ratio['median']:.2f} times as many pairs a second (best "
        f"turns: {ratio['best']:.2f}); {options.size}, {options.batch} rows of "
        f"{options.length}, {options.dtype}"
    )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(MODULE, __doc__)
    parser.add_argument("--sources", nargs="+", required=True, help="corpus.sources")
    parser.add_argument("--vocabulary", required=True, help="vocab.txt")
    parser.add_argument("--size", default="4/256", help="base, large, LAYERS/HIDDEN")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--batch", type=int, default=8, help="rows of a step")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turn", type=float, default=10.0, help="seconds")
    parser.add_argument("--output", default="", help="JSON")
    options = parser.parse_args(arguments)
    if not re.fullmatch(r"base|large|[1-9]\d*/[1-9]\d*", options.size):
        parser.error(f"--size={options.size}: base, large or LAYERS/HIDDEN")
    for name in ("batch", "rounds", "turn"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name}={getattr(options, name)}: more than 0 is required")
    return options


@ending.command
def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    facts = measuring.begin(MODULE, arguments, ("jax", "jaxlib", "flax", "numpy"))
    found = measure(options)
    print(report(options, found))
    measuring.write(options.output, {**facts, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
