"""One command for a rented GPU: where a training step's time goes, and how fast it is.

    python -m experiments.speed.gpu --part=1 --output=gpu.json
    python -m experiments.speed.gpu --part=2 --output=gpu.json
    python -m experiments.speed.gpu --part=3 --output=gpu.json

1: profiles of the step, each kernel beside a model's prediction (see `kernels`); 2:
batches, dtypes, recomputation and XLA's flags, one change at a time; 3: torch on the
same card (`train_step`, in turns). A part ends before nine minutes. Every case is a
process with a time limit; the file is written after each, so what is done stays.

It needs neither data nor a network, and no more than JAX, Flax, Optax and
ml-collections (jax 0.10 or 0.11). Where there is a network, on the same Python:

    pip download -d wheels "jax[cuda13]" flax optax ml-collections
    pip download -d wheels torch transformers       # for part 3 alone

then, on the GPU's machine, in this folder:
`pip install --no-index --find-links=wheels "jax[cuda13]" flax optax ml-collections`.
Drivers before 580 take `jax[cuda12]`. Of the libraries that only data and checkpoints
need, those that are not installed are stood in for (see `absent`).

A figure is a share of the data sheet's dense bfloat16 peak (`of sheet`) and of the
matrix product's peak measured on this card in the case's dtype (`of measured`; float32
is TF32 by XLA's default). FLOPs are the model's (`pretraining_flops`).
"""

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import flax.linen  # noqa: F401  (before the stand-ins: it asks what is installed)
import jax
import ml_collections  # noqa: F401  (likewise)
import optax  # noqa: F401  (likewise)

from experiments.capacity import hlo, kernels
from experiments.speed import absent, measuring

if __name__ == "__main__":  # before the imports of what may not be there
    if importlib.util.find_spec("transformers"):
        import transformers  # noqa: F401  (likewise)
    absent.stand_in()

from bert_jax.models.config import BertConfig, pretraining_flops
from bert_jax.runtime import compilation_cache
from bert_jax.runtime.terminal import table
from bert_jax.training import sharding
from experiments.lib import ending
from experiments.lib.command_line import Parser
from experiments.speed import gpu_cases, our_step, train_sides, train_step

MODULE = "experiments.speed.gpu"
MINUTES = 8.5  # of a part
PROFILED_STEPS = 3


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Measures a case in this process."""
    if case["kind"] == "torch":
        return train_step.measure(case)  # in processes of their own
    compilation_cache.keep()
    if case["kind"] == "peaks":
        return {
            "device": jax.devices()[0].device_kind,
            "peaks": measuring.jax_peaks(*case["peak"]),
        }
    config = our_step.sized_config(case["size"], case["length"], case["batch"])
    for field in ("dtype", "attention", "remat", "scan_layers"):
        config.model[field] = case[field]
    config.model.attention_probs_dropout_prob = case["attention_dropout"]
    config.corpus.packing = case["packing"]
    pairs = our_step.PACKED if case["packing"] else 1
    start = time.monotonic()
    step = our_step.OurStep(config, [our_step.random_batch(config)])
    step(2)
    ready = time.monotonic() - start
    turns = {train_sides.OURS: measuring.timed(step)}
    (found,) = measuring.alternate(turns, case["rounds"], case["turn"]).values()
    model = BertConfig.create(config.model, config.tokenizer.vocab_size)
    chosen = config.masking.max_predictions_per_seq
    stats = jax.local_devices()[0].memory_stats() or {}
    figures = {
        "seconds_to_ready": ready,
        "step": found,
        "flops": case["batch"]
        * pretraining_flops(model, case["length"], chosen, pairs),
        "sequences": case["batch"] * pairs,
        "sheet": sharding.PEAK_FLOPS.get(jax.devices()[0].device_kind),
        "peak_memory": stats.get("peak_bytes_in_use"),
    }
    if case["kind"] == "profile":
        figures["profile"] = _profile(step, case["model"])
    return figures


def _profile(step: our_step.OurStep, peaks: Mapping[str, float]) -> dict[str, Any]:
    """The step's kernels, as the model has them and as they ran."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            step(PROFILED_STEPS)
        seen = kernels.measured(Path(folder))
    program = kernels.kernels(hlo.Program(step.compiled.as_text() or ""))
    known = kernels.Peaks(
        flops={name: peaks[name] for name in ("float32", "bfloat16")},
        bytes=peaks["copy"],
        integer=peaks["integer"],
    )
    return kernels.beside(program, seen, known, PROFILED_STEPS)


HEADER = (
    *("size", "length", "batch", "dtype", "variant", "sequences/s", "ms"),
    *("TFLOP/s", "of sheet", "of measured", "GB"),
)


def row(case: Mapping[str, Any], peaks: Mapping[str, float]) -> tuple[str, ...]:
    """A step's line of the table."""
    head = (case["size"], str(case["length"]), str(case["batch"]), case["dtype"])
    if "error" in case:
        return (*head, f"{gpu_cases.label(case)}: {case['error'][:80]}", *[""] * 6)
    seconds, memory = case["step"]["median"], case["peak_memory"]
    rate = case["flops"] / seconds
    measured = peaks.get(case["dtype"])
    return (
        *head,
        gpu_cases.label(case),
        f"{case['sequences'] / seconds:,.0f}",
        f"{1e3 * seconds:.2f}",
        f"{rate / 1e12:.3g}",
        f"{rate / case['sheet']:.1%}" if case["sheet"] else "",
        f"{rate / measured:.1%}" if measured else "",
        f"{memory / 1e9:.1f}" if memory else "",
    )


def show(case: Mapping[str, Any], peaks: Mapping[str, float]) -> str:
    """A finished case as text."""
    if case["kind"] == "peaks":
        if "error" in case:
            return f"peaks: {case['error']}"
        shown = ", ".join(
            f"{name} {peaks[name] / 1e12:.3g} T{'B' if name == 'copy' else 'FLOP'}/s"
            for name in case["peaks"]
        )
        return f"{case['device']}: measured peaks {shown}"
    if case["kind"] == "torch":
        lines = table(train_step.rows_of(dict(case)), train_step.HEADER)
        return "\n".join([lines, *train_step.notes(dict(case))])
    text = table([row(case, peaks)], HEADER)
    if "profile" not in case:
        return text
    found, wall = case["profile"], 1e3 * case["step"]["median"]
    sums = "; ".join(
        f"{kind} {real:.2f} ms ({model:.2f})"
        for kind, (model, real) in sorted(found["kinds"].items())
    )
    return (
        f"{text}\nof {wall:.2f} ms: kernels {found['measured_ms']:.2f} ms (by the "
        f"model {found['model_ms']:.2f}): {sums}\n"
        f"{table(kernels.lines(found), kernels.HEADER)}"
    )


class Results:
    """The file of all parts; a part that runs again replaces its own cases."""

    def __init__(self, path: str, part: int, facts: Mapping[str, Any]):
        self._path, self.cases = path, []  # type: tuple[str, list[dict[str, Any]]]
        self._parts: dict[str, Any] = {}
        if path and Path(path).exists():
            self._parts = json.loads(Path(path).read_text(encoding="utf-8"))["parts"]
        self._parts[str(part)] = {**facts, "cases": self.cases}

    def add(self, case: dict[str, Any]) -> None:
        """Keeps a case, in the file too."""
        self.cases.append(case)
        measuring.write(self._path, {"parts": self._parts})


def run(options: argparse.Namespace, results: Results) -> None:
    """Measures a part's cases until they, or its minutes, are over."""
    end = time.monotonic() + 60 * options.minutes
    peaks: dict[str, float] = {}
    settings = {"rounds": 5, "turn": 1.0, "peak": [8192, 2000, 1.0]}
    listed = (
        gpu_cases.small(options.part)
        if options.dry_run
        else gpu_cases.cases(options.part, options.scale)
    )
    for case in [{**listed[0], "kind": "peaks", "flags": ""}, *listed]:
        case = {**settings, **case, "model": peaks}
        left = end - time.monotonic()
        if options.dry_run:
            done = {**case, **measure(case)}
        elif left < 10:
            done = {**case, "error": "not started: the part's time is over"}
        else:
            flags = f"{os.environ.get('XLA_FLAGS', '')} {case.get('flags', '')}".strip()
            variables = {"XLA_FLAGS": flags} if flags else {}
            limit = min(left, options.limit)
            done = measuring.in_process(MODULE, case, limit, variables)
        if case["kind"] == "peaks" and "error" not in done:
            peaks = {**done["peaks"], "integer": options.integer}
            peaks |= {"bfloat16": options.flops} if options.flops else {}
            peaks |= {"copy": options.bandwidth} if options.bandwidth else {}
        results.add(done)
        print(f"\n{show(done, peaks)}", flush=True)
    steps = [row(case, peaks) for case in results.cases if "step" in case]
    if steps:
        print(f"\n{table(steps, HEADER)}")


@ending.command
def main(arguments: Sequence[str]) -> int:
    if case := measuring.case_of(arguments):
        print(json.dumps(measure(case)))
        return 0
    parser = Parser(MODULE, __doc__)
    parser.add_argument("--part", type=int, choices=(1, 2, 3), default=1)
    parser.add_argument("--output", default="gpu.json")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--limit", type=float, default=150.0, help="seconds of a case")
    parser.add_argument("--scale", type=float, default=1.0, help="of the batches")
    parser.add_argument("--flops", type=float, help="the model's, of bfloat16")
    parser.add_argument("--bandwidth", type=float, help="the model's, bytes a second")
    parser.add_argument("--integer", type=float, default=kernels.INTEGER)
    parser.add_argument("--dry-run", action="store_true", help="small, on any device")
    options = parser.parse_args(arguments)
    facts = measuring.begin(MODULE, arguments)
    run(options, Results(options.output, options.part, facts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
