"""How many sequences the loader makes a second on one core, and what each part takes.

    python -m experiments.speed.loader [--megabytes=10] [--source=pydocs]

Times are CPU time of the process, in microseconds a row, medians over batches of random
records. The pairs are prepared from text as in `experiments.speed.preparation`."""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from bert_jax import tokenization
from bert_jax.config.phases import phases
from bert_jax.data import loader, masking, prepare, records
from bert_jax.runtime.terminal import table
from experiments.speed import measuring
from experiments.speed.preparation import make_config, make_text

MODULE = "experiments.speed.loader"
PREDICTIONS = {128: 20, 512: 77}  # as in the paper
ROUNDS = 20


def microseconds(function: Callable[[int], object], batch: int) -> float:
    """CPU time of a row: the median over ROUNDS batches, the first ones not counted."""
    taken = []
    for number in range(ROUNDS):
        start = time.process_time()
        function(number)
        taken.append(time.process_time() - start)
    return 1e6 * statistics.median(taken[3:]) / batch


def parts(config: ConfigDict, batch: int) -> dict[str, float]:
    """Microseconds a row of each part, and of the whole."""
    (phase,) = phases(config)
    length, predictions = phase.max_seq_length, phase.max_predictions_per_seq
    data = prepare.prepare(config, length)
    special = tokenization.special_ids(data.tokenizer)
    source = loader._Pairs(config, phase, data, "train")
    order = np.random.default_rng(0)
    rows = [order.integers(0, len(source), batch) for _ in range(ROUNDS)]
    raw = [source._source.__getitems__(some.tolist()) for some in rows]
    pairs = [records.parse(some) for some in raw]
    whole = [loader.assemble(some, batch, length, special) for some in pairs]

    def draw(number: int) -> np.ndarray:
        epochs, count = np.zeros(batch, int), length + 2 * predictions
        return masking.uniform(0, b"mask", epochs, rows[number], count)

    draws = [draw(number) for number in range(ROUNDS)]

    def apply(number: int) -> masking.Masked:
        ids, mask, _, candidates = whole[number]
        return masking.apply(
            *(ids, mask, candidates, lambda count: draws[number], config.masking),
            *(predictions, special.mask, source._continuation),
        )

    cases: dict[str, Callable[[int], object]] = {
        "read": lambda n: source._source.__getitems__(rows[n].tolist()),
        "parse": lambda n: records.parse(raw[n]),
        "assemble": lambda n: loader.assemble(pairs[n], batch, length, special),
        "draw masks": draw,
        "apply masks": apply,
        "all": lambda n: source.batch(rows[n], 0),
    }
    return {name: microseconds(case, batch) for name, case in cases.items()}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--source", default="pydocs", help="as in corpus.sources")
    parser.add_argument("--vocabulary", default="", help="empty: trained on the text")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--output", default="", help="JSON")
    options = parser.parse_args(arguments)
    facts = measuring.begin(MODULE, arguments, ("numpy", "array-record"))
    lengths = {}
    with tempfile.TemporaryDirectory() as folder:
        path = make_text(options.source, options.megabytes, Path(folder))
        for length, predictions in PREDICTIONS.items():
            config = make_config(path, length, 30_522)
            config.tokenizer.vocab_file = options.vocabulary
            config.masking.max_predictions_per_seq = predictions
            lengths[length] = parts(config, options.batch)
    speeds = {length: 1e6 / each["all"] for length, each in lengths.items()}
    rows: list[tuple] = [
        (name, *(f"{each[name]:.1f}" for each in lengths.values()))
        for name in next(iter(lengths.values()))
    ]
    rows.append(("sequences/s", *(f"{speed:,.0f}" for speed in speeds.values())))
    print(table(rows, ("us a row", *(f"length {length}" for length in lengths))))
    found = {"microseconds_a_row": lengths, "sequences_a_second_a_core": speeds}
    measuring.write(options.output, {**facts, **found})


if __name__ == "__main__":
    main(sys.argv[1:])
