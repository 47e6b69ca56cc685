"""The speed of a training step, beside torch's and KerasHub's on the same work.

    python -m experiments.speed.train_step [--sizes=base,4/768,2/128] \
        [--lengths=128,512] [--batch=16,4] [--threads=1] [--output=FILE.json] \
        [--task=classification]

The work: pre-training of a size on one batch, or fine-tuning a classifier of two
classes, dropout on, clipping and optimizer included, from the host's arrays to the new
weights. Ours is the step that a run compiles. Torch's is `transformers`'
BertForPreTraining or BertForSequenceClassification, by the names of `--torch`:
`sdpa` and `eager` are its attention, `compile` is torch.compile (with sdpa); the masked
LM head computes at every position, as it is in `transformers`, and with `-gathered` at
the predicted ones alone, as ours does (`--torch=`: without torch). bfloat16 is torch's
autocast there. KerasHub's side, on its JAX backend, takes the steps of `Model.fit`,
compiled, with the head at the predicted positions (`--no-keras`: without it; the extra
`keras` installs it).

JAX and torch have a process each for a size, length and dtype, and their sides take
turns: in one process their pools of threads disturb each other. First the peaks of
matrix products and copies are measured, by JAX and by torch; the higher counts. `share`
is the model's FLOPs (`pretraining_flops`: matrix products alone, the head at the
predicted positions, for all sides; of a classifier the encoder's) of the matrix
product's peak in the side's dtype. Ours computes the last layer where it is read, at
the predicted positions and [CLS], and its share still counts the whole: in two layers
of 128 a classifier's step does 60% of these FLOPs.
`ours / it` is torch's time over ours: above 1 we are faster. Both are of the medians;
the best turns and the processor times are in the file.

With `--model=roberta` or `--model=modernbert` both sides are these, with their masked
LM, single texts, and BERT's optimizer.

Rows are full: random pieces, never padding.
"""

import argparse
import contextlib
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.models.attention import ATTENTIONS
from bert_jax.runtime.terminal import table
from experiments.lib import ending, report
from experiments.lib.command_line import Parser, check_counts, several
from experiments.speed import measuring, our_step, sides, train_sides
from experiments.speed.sides import PEAKS
from experiments.speed.train_sides import DTYPES, MODELS, OURS

MODULE = "experiments.speed.train_step"
LEAST = 8  # tokens of a row; a packed one has two halves
TORCH = {
    "pretraining": [name for name in train_sides.TORCH if name != "eager"],
    "classification": [name for name in train_sides.TORCH if "gathered" not in name],
}


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Measures the sides of a case, each library's in a process of its own.

    Raises:
      RuntimeError: a process ended, or the numbers of parameters differ.
    """
    peers = [name for name in ("torch", "keras") if case[name]]
    with contextlib.ExitStack() as stack:
        opened = {
            name: stack.enter_context(
                sides.Process(train_sides.MODULE, {**case, "library": name})
            )
            for name in ("jax", *peers)
        }
        turns: dict[str, Callable[[int], float]] = {}
        figures: dict[str, Any] = {}
        not_run: dict[str, str] = {}
        counted: set[int] = set()
        for process in opened.values():
            figures |= process.found
            not_run |= figures.pop("not_run")
            counted |= set(figures.pop("parameters"))
            turns |= process.turns()
        if not counted:
            raise RuntimeError("; ".join(not_run.values()))
        if len(counted) != 1:
            raise RuntimeError(f"the sides' numbers of parameters differ: {counted}")
        peaks = {
            name: process.ask(PEAKS)["value"]
            for name, process in opened.items()
            if PEAKS in process.sides
        }
        result = measuring.alternate(turns, case["rounds"], case["turn"])
    return {
        **figures,
        "parameters": counted.pop(),
        "cores_used": case["threads"] or report.cores(),
        "peaks": peaks,
        "sides": result,
        "not_run": not_run,
    }


def rows_of(case: dict[str, Any]) -> list[tuple[str, ...]]:
    """A case's lines of the table."""
    head = (case["size"], str(case["length"]), str(case["batch"]), case["dtype"])
    if "error" in case:
        return [(*head, f"no result: {case['error']}", "", "", "", "", "")]
    peaks = measuring.higher(*case["peaks"].values())
    ours = {k: v for k, v in case["sides"].items() if k.startswith(OURS)}
    best = min(ours.values(), key=lambda side: side["median"], default=None)
    found: list[tuple[str, ...]] = []
    for name, side in case["sides"].items():
        rate = case["flops"] / side["median"]
        ratio = ""
        if best and name not in ours:
            ratio = f"{measuring.ratio(side, best)['median']:.2f}"
        found.append(
            (
                *head,
                name,
                f"{case['batch'] / side['median']:.4g}",
                f"{case['batch'] / side['best']:.4g}",
                f"{rate / 1e9:,.0f}",
                f"{rate / peaks[case['dtype']]:.1%}",
                ratio,
            )
        )
    return found


HEADER = (
    *("size", "length", "batch", "dtype", "side"),
    *("sequences/s", "best turn", "GFLOP/s", "share", "ours / it"),
)


def notes(case: dict[str, Any]) -> list[str]:
    """What the table does not say about a case."""
    if "error" in case:
        return []
    peaks = measuring.higher(*case["peaks"].values())
    reached = ", ".join(
        f"{name} {peaks[name] / 1e9:,.0f} GFLOP/s" for name in ("float32", "bfloat16")
    )
    lines = [
        f"{case['size']}, length {case['length']}, {case['dtype']}: {case['device']}, "
        f"{case['cores_used']} core(s); peaks {reached}, copy "
        f"{peaks['copy'] / 1e9:.1f} GB/s; {case['flops'] / 1e9:,.1f} GFLOP a step, "
        f"{case['parameters']:,} parameters, full rows, dropout {case['dropout']}"
        + "".join(
            f"; torch's {k}: {v}" for k, v in case.get("torch_optimizer", {}).items()
        )
    ]
    return lines + [f"not run: {name}: {why}" for name, why in case["not_run"].items()]


def cases(options: argparse.Namespace) -> list[dict[str, Any]]:
    """One for each size, length and dtype."""
    batches = options.batch * (len(options.lengths) if len(options.batch) == 1 else 1)
    return [
        {
            "model": options.model,
            "task": options.task,
            "size": size,
            "length": length,
            "batch": batch,
            "dtype": dtype,
            "attentions": options.attentions,
            "torch": options.torch,
            "keras": options.keras and options.model == "bert",
            "threads": options.threads,
            "dropout": options.dropout,
            "rounds": options.rounds,
            "turn": options.turn,
            "peak": [options.peak_size, options.peak_size // 8, options.turn / 2],
        }
        for size in options.sizes
        for length, batch in zip(options.lengths, batches, strict=True)
        for dtype in options.dtypes
    ]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(MODULE, __doc__)
    parser.add_argument("--model", default="bert", choices=MODELS)
    parser.add_argument("--task", default=our_step.TASKS[0], choices=our_step.TASKS)
    size = "base, large, LAYERS/HIDDEN"
    parser.add_argument("--sizes", default="base", type=several(str), help=size)
    parser.add_argument("--lengths", default="128", type=several(int))
    parser.add_argument(
        "--batch", default="16", type=_numbers, help="rows; one for each length"
    )
    parser.add_argument("--dtypes", default=",".join(DTYPES), type=several(str, DTYPES))
    ours = several(str, ATTENTIONS, empty=True)
    parser.add_argument("--attentions", default=",".join(ATTENTIONS), type=ours)
    theirs = several(str, train_sides.TORCH, empty=True)
    parser.add_argument("--torch", type=theirs, help="empty: ours alone")
    parser.add_argument("--keras", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn", type=float, default=4.0, help="least seconds of one")
    parser.add_argument("--peak_size", type=int, default=2048, help="of the products")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds of a case")
    parser.add_argument("--output", default="", help="JSON; written after each case")
    parser.add_argument("--quick", action="store_true", help="only shows that it runs")
    options = parser.parse_args(arguments)
    if options.torch is None:
        options.torch = ["sdpa"] if options.quick else TORCH[options.task]
    if options.quick:
        options.sizes, options.lengths, options.batch = ["1/64"], [16], [2]
        options.rounds, options.turn, options.peak_size = 1, 0.0, 64
    _check(options)
    return options


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _check(options: argparse.Namespace) -> None:
    """Raises UserError where options do not go together, or a number is impossible."""
    if options.task == "classification":
        if options.model != "bert":
            raise UserError("--task=classification: with BERT alone; leave out --model")
        if not set(options.torch) <= set(TORCH[options.task]):
            raise UserError("--torch: a classifier has no predictions to gather")
    check_counts(options, "rounds", "peak_size")
    if not 0 <= options.threads <= report.cores():
        raise UserError(f"--threads={options.threads}: 0 to {report.cores()}")
    if not 0 <= options.dropout < 1:
        raise UserError(f"--dropout={options.dropout}: must be in [0, 1)")
    if len(options.batch) not in (1, len(options.lengths)) or min(options.batch) < 1:
        raise UserError("--batch: give one, or one for each of --lengths; at least 1")
    for size, length in itertools.product(options.sizes, options.lengths):
        if size not in our_step.KNOWN and not re.fullmatch(r"[1-9]\d*/[1-9]\d*", size):
            raise UserError(f"--sizes={size}: none of base, large, LAYERS/HIDDEN")
        config = our_step.sized_config(size, length, 1, options.model, options.task)
        if config.model.hidden_size % 64:
            raise UserError(f"--sizes={size}: HIDDEN must be a multiple of 64")
        most = config.model.max_position_embeddings
        if not LEAST <= length <= most:
            raise UserError(f"--lengths={length}: must be from {LEAST} to {most}")


@ending.command
def main(arguments: Sequence[str]) -> int:
    """Gives the exit status: 1 where a case failed."""
    options = parse(arguments)
    facts = measuring.begin(MODULE, arguments)
    finished: list[dict[str, Any]] = []
    for case in cases(options):
        finished.append(measuring.in_process(MODULE, case, options.limit))
        measuring.write(options.output, {**facts, "cases": finished})
        print(f"\n{table(rows_of(finished[-1]), HEADER)}", flush=True)
        print("\n".join(notes(finished[-1])), flush=True)
    if len(finished) > 1:
        every = [line for case in finished for line in rows_of(case)]
        print(f"\n{table(every, HEADER)}")
    return int(any("error" in case for case in finished))


if __name__ == "__main__":
    ending.start(main)
