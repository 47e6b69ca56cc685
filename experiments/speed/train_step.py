"""The speed of a training step, compared with torch's on the same work.

    python -m experiments.speed.train_step [--sizes=base,4/768,2/128] \
        [--lengths=128,512] [--batch=16,4] [--output=FILE.json] [--profile=FOLDER] \
        [--task=classification] [--config.FIELD=VALUE ...]

The work: pre-training of a size on one batch, or fine-tuning a classifier of two
classes, of any family with `--family`, dropout on, clipping and optimizer included,
from the host's arrays to the new weights. Rows are full. Ours is the step that a run
compiles. Torch's is `transformers`' model, by the names of `--torch`: `sdpa` (where the
model has it) and `eager` are its attention, `compile` is torch.compile (with sdpa).
With `-gathered` the masked LM head computes at the predicted positions alone, as ours
does. bfloat16 is torch's autocast there.

JAX and torch have a process each, and their sides take turns. GFLOP/s are of the
model's FLOPs (`pretraining_flops`, or the encoder's), although ours computes the last
layer only where it is read. `ours / it` is torch's time over ours: above 1 we are
faster. Both are of the medians. Best turns and processor times are in the file.
With --profile ours alone runs once more, and its kernels by their time are printed.
"""

import argparse
import contextlib
import itertools
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bert_jax.commands import command_line, runner
from bert_jax.commands.command_line import Parser, check_counts, several, with_fields
from bert_jax.config import configuration
from bert_jax.errors import UserError
from bert_jax.registry import ATTENTIONS
from bert_jax.runtime.terminal import format_table
from experiments.speed import our_step, sides

MODULE = "experiments.speed.train_step"
DTYPES = ("float32", "bfloat16")
OURS = "ours"
LEAST = 8  # minimum tokens of a row. A packed one has two halves
# A side of torch: its attention, whether torch.compile is used, and whether the
# masked LM head computes at the predicted positions alone.
TORCH = {
    "sdpa": ("sdpa", False, False),
    "sdpa-gathered": ("sdpa", False, True),
    "eager": ("eager", False, False),
    "compile": ("sdpa", True, False),
    "compile-gathered": ("sdpa", True, True),
}
USUAL = {
    "pretraining": [name for name in TORCH if name != "eager"],
    "classification": [name for name in TORCH if "gathered" not in name],
}
Sides = dict[str, Callable[[int], Any]]


def prepare_sides(case: dict[str, Any]) -> tuple[Sides, dict[str, Any]]:
    """Returns the sides of the case's library, in this process."""
    return _torch_sides(case) if case["library"] == "torch" else _jax_sides(case)


def _jax_sides(case: dict[str, Any]) -> tuple[Sides, dict[str, Any]]:
    """Returns our step with each of the case's attentions."""
    import jax

    from bert_jax.runtime import environment

    environment.require_devices()
    environment.keep_programs()
    config, found = _config(case), Sides()
    batch = our_step.random_batch(config)
    not_run, parameters = {}, set()
    for attention in case["attentions"]:
        name = f"{OURS}, {attention}"
        config.model.attention = attention
        try:
            side = our_step.OurStep(config.copy_and_resolve_references(), [batch])
        except UserError as error:
            not_run[name] = str(error)
            continue
        _warm(side)
        found[name] = side
        parameters.add(side.parameters)
    return found, {
        "device": jax.devices()[0].device_kind,
        "flops": our_step.step_flops(config),
        "parameters": sorted(parameters),
        "not_run": not_run,
    }


def _torch_sides(case: dict[str, Any]) -> tuple[Sides, dict[str, Any]]:
    """Returns torch's step by each of the case's names."""
    import torch

    from experiments.speed import torch_step

    torch_step.set_up()
    config = _config(case)
    rows = torch_step.to_torch_batch(our_step.random_batch(config))
    networks: dict[str, torch_step.Network] = {}
    found: Sides = {}
    not_run = {}
    for name in case["torch"]:
        attention, compiles, gathered = TORCH[name]
        if attention not in networks:
            networks[attention] = torch_step.Network(config, attention)
        side = torch_step.TorchStep(
            *(networks[attention], rows, case["dtype"]),
            compiles=compiles,
            gathered=gathered,
        )
        try:
            _warm(side)
        except Exception as error:  # torch.compile needs a compiler, and may not manage
            if not compiles:
                raise
            lines = str(error).strip().splitlines() or [""]
            not_run[f"torch, {name}"] = f"{type(error).__name__}: {lines[0][:200]}"
            continue
        found[f"torch, {name}"] = side
    return found, {
        "torch_threads": torch.get_num_threads(),
        "parameters": sorted({network.parameters for network in networks.values()}),
        "not_run": not_run,
    }


def _config(case: dict[str, Any]) -> Any:
    shape = (case[name] for name in ("size", "length", "batch", "task", "family"))
    config = our_step.sized_config(*shape)
    config.model.dtype = case["dtype"]
    for name, value in configuration.parse_overrides(case["fields"]).items():
        configuration.set_field(config, name, value)
    return config


def _warm(side: Callable[[int], float]) -> None:
    """Compiles, and steps until nothing is new.

    Raises:
      RuntimeError: The loss is not finite.
    """
    for _ in range(2):
        if not math.isfinite(loss := side(1)):
            raise RuntimeError(f"the loss is {loss}")


def measure_case(case: dict[str, Any]) -> dict[str, Any]:
    """Returns a case with the turns of its sides, or why there are none: `error`."""
    try:
        return {**case, **_measured(case)}
    except RuntimeError as error:
        return {**case, "error": str(error)[:500]}


def _measured(case: dict[str, Any]) -> dict[str, Any]:
    figures: dict[str, Any] = {"not_run": {}}
    turns: dict[str, Callable[[int], float]] = {}
    counted: set[int] = set()
    with contextlib.ExitStack() as stack:
        for library in ("jax", "torch") if case["torch"] else ("jax",):
            process = sides.Process(MODULE, {**case, "library": library}, case["limit"])
            found = stack.enter_context(process).found
            figures["not_run"] |= found.pop("not_run")
            counted |= set(found.pop("parameters"))
            figures |= found
            turns |= process.turns()
        if not counted:
            raise RuntimeError("; ".join(figures["not_run"].values()))
        if len(counted) != 1:
            raise RuntimeError(f"the sides' numbers of parameters differ: {counted}")
        timed = sides.time_in_turns(turns, case["rounds"], case["turn"])
    return {**figures, "parameters": counted.pop(), "sides": timed}


HEADER = (
    *("size", "length", "batch", "dtype", "side"),
    *("sequences/s", "best turn", "GFLOP/s", "ours / it"),
)


def table_rows(case: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns a case's lines of the table."""
    head = (case["size"], str(case["length"]), str(case["batch"]), case["dtype"])
    if "error" in case:
        return [(*head, f"no result: {case['error']}", "", "", "", "")]
    ours = {k: v for k, v in case["sides"].items() if k.startswith(OURS)}
    best = min(ours.values(), key=lambda side: side["median"], default=None)
    return [
        (
            *(*head, name),
            f"{case['batch'] / side['median']:.4g}",
            f"{case['batch'] / side['best']:.4g}",
            f"{case['flops'] / side['median'] / 1e9:,.0f}",
            f"{sides.times_as_fast(best, side):.2f}"
            if best and name not in ours
            else "",
        )
        for name, side in case["sides"].items()
    ]


def describe_case(case: dict[str, Any]) -> list[str]:
    """Returns notes about a case that are not in the table."""
    if "error" in case:
        return []
    about = (
        f"{case['device']}: {case['flops'] / 1e9:,.1f} GFLOP a step, "
        f"{case['parameters']:,} parameters"
    )
    not_run = (f"not run: {name}: {why}" for name, why in case["not_run"].items())
    return [about, *not_run]


def list_cases(
    options: argparse.Namespace, fields: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns a case for each size, length and dtype."""
    batches = options.batch * (len(options.lengths) if len(options.batch) == 1 else 1)
    names = ("task", "family", "attentions", "torch", "rounds", "turn", "limit")
    same = {"fields": fields, **{name: getattr(options, name) for name in names}}
    return [
        {"size": size, "length": length, "batch": batch, "dtype": dtype, **same}
        for size in options.sizes
        for length, batch in zip(options.lengths, batches, strict=True)
        for dtype in options.dtypes
    ]


def parse_options(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Returns the options, and the config's fields of our side.

    Raises:
      UserError: One is wrong, or two do not go together.
    """
    parser = Parser(MODULE, __doc__)
    parser.add_argument("--task", default="pretraining", choices=USUAL)
    our_step.add_family(parser)
    size = "base, large, LAYERS/HIDDEN"
    parser.add_argument("--sizes", default="base", type=several(str), help=size)
    parser.add_argument("--lengths", default="128", type=several(int))
    rows = "rows; one for each length"
    parser.add_argument("--batch", default="16", type=_numbers, help=rows)
    parser.add_argument("--dtypes", default=",".join(DTYPES), type=several(str, DTYPES))
    ours = several(str, ATTENTIONS, empty=True)
    parser.add_argument("--attentions", default=",".join(ATTENTIONS), type=ours)
    theirs = several(str, TORCH, empty=True)
    parser.add_argument("--torch", type=theirs, help="empty: ours alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn", type=float, default=4.0, help="least seconds of one")
    limit = "seconds in which a library must be ready"
    parser.add_argument("--limit", type=float, default=3600.0, help=limit)
    parser.add_argument("--output", type=Path, help="JSON; after each case")
    parser.add_argument("--profile", type=Path, help="a folder for the program")
    options, fields = with_fields(parser, arguments)
    if options.torch is None:
        options.torch = USUAL[options.task]
    _check(options)
    if options.torch and any("packing" in text for text in fields):
        raise UserError("--torch: has no packed rows; --torch= leaves it out")
    return options, fields


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _check(options: argparse.Namespace) -> None:
    """Raises UserError where options do not go together, or a number is impossible."""
    if options.task == "pretraining" and options.family != "bert":
        raise UserError("--family: goes with --task=classification")
    if options.task == "classification" and "gathered" in "".join(options.torch):
        raise UserError("--torch: a classifier has no predictions to gather")
    check_counts(options, "rounds")
    if len(options.batch) not in (1, len(options.lengths)) or min(options.batch) < 1:
        raise UserError("--batch: give one, or one for each of --lengths; at least 1")
    for size, length in itertools.product(options.sizes, options.lengths):
        if size not in our_step.KNOWN and not re.fullmatch(r"[1-9]\d*/[1-9]\d*", size):
            raise UserError(f"--sizes={size}: none of base, large, LAYERS/HIDDEN")
        model = our_step.sized_config(size, length, 1, options.task).model
        if model.hidden_size % 64:
            raise UserError(f"--sizes={size}: HIDDEN must be a multiple of 64")
        if not LEAST <= length <= model.max_position_embeddings:
            raise UserError(f"--lengths={length}: must be from {LEAST} to 512")


@command_line.command
def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns the exit status, 1 where a case failed."""
    options, fields = parse_options(arguments)
    facts = sides.print_facts(MODULE, arguments)
    done: list[dict[str, Any]] = []
    cases = list_cases(options, fields)
    for case in cases:
        done.append(measure_case(case))
        if options.output:
            runner.write_json(options.output, {**facts, "cases": done})
        lines = (format_table(table_rows(done[-1]), HEADER), *describe_case(done[-1]))
        print("\n" + "\n".join(lines), flush=True)
    if len(done) > 1:
        every = [line for case in done for line in table_rows(case)]
        print(f"\n{format_table(every, HEADER)}")
    if options.profile:
        _print_profile(cases[0], options.profile)
    return int(any("error" in case for case in done))


def _print_profile(case: dict[str, Any], folder: Path) -> None:
    """Prints the kernels of our step, with the last of the case's attentions."""
    from experiments.speed import kernels

    config = _config(case)
    config.model.attention = case["attentions"][-1]
    step = our_step.OurStep(config, [our_step.random_batch(config)])
    rows = kernels.profile_step(step, folder)
    print(f"\n{format_table(rows[:40], kernels.HEADER)}")


if __name__ == "__main__":
    command_line.start(main)
