"""Where a training step's time goes on a GPU: its kernels beside a model's prediction.

    python -m experiments.speed.gpu --sizes=base --lengths=128,512 --batch=256,64 \
        [--attentions=einsum,fused,cudnn] [--packing] [--remat=full] [--scan_layers] \
        [--no-profile] [--output=FILE.json]

Sizes, lengths, batches, dtypes and the rest are options of `train_step`, which sets
torch beside the same step. Each case is a process with a time limit (--limit). It
measures the card's peaks, times the step, and profiles it: each kernel beside the time
that a model gives it (experiments/capacity/kernels.py). A profile names no kernel that
a CUDA graph has started, so there are none; --no-profile has them, as a run. XLA's
flags are those of XLA_FLAGS.

It needs neither data nor a network. Where there is one, on the same Python and in this
folder: `pip download -d wheels ".[gpu]"`; then on the GPU's machine
`pip install --no-index --find-links=wheels ".[gpu]"`. Drivers before 580 take
`jax[cuda12]` in place of the extra.

A figure is a share of the data sheet's dense bfloat16 peak (`of sheet`) and of the
matrix product's peak measured on this card in the case's dtype (`of measured`; float32
is TF32 by XLA's default). FLOPs are the model's (`pretraining_flops`).
"""

import argparse
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from bert_jax.errors import UserError
from bert_jax.runtime import compilation_cache
from bert_jax.runtime.terminal import table
from bert_jax.training import history
from experiments.capacity import hlo, kernels
from experiments.lib import ending
from experiments.lib.command_line import Parser
from experiments.speed import measuring, our_step, train_step

MODULE = "experiments.speed.gpu"
PROFILED_STEPS = 3
WITHOUT_GRAPHS = "--xla_gpu_enable_command_buffer="
# What fills a card of 80 GB, and how long it may take, where no option says otherwise.
USUAL = (
    *("--batch=256", "--dtypes=bfloat16", "--turn=1", "--peak_size=8192"),
    "--limit=300",
)


def measure(case: Mapping[str, Any]) -> dict[str, Any]:
    """Measures a case in this process."""
    compilation_cache.keep()
    peaks = measuring.peaks("jax", *case["peak"])
    shape = (case[name] for name in ("size", "length", "batch", "model", "task"))
    config = our_step.sized_config(*shape)
    config.model.update(case["fields"])
    config.corpus.packing = case["packing"]
    pairs = our_step.PACKED if case["packing"] else 1
    start = time.monotonic()
    step = our_step.OurStep(config, [our_step.random_batch(config)])
    compiled = time.monotonic() - start
    step(2)
    turns = {"step": measuring.timed(step)}
    device = jax.local_devices()[0]
    figures = {
        "device": device.device_kind,
        "peaks": peaks,
        **measuring.alternate(turns, case["rounds"], case["turn"]),
        "flops": our_step.flops(config, pairs),
        "compile": compiled,  # with XLA's choice among kernels, and the first state
        "sequences": case["batch"] * pairs,
        "sheet": history.PEAK_FLOPS.get(device.device_kind),
        "peak_memory": (device.memory_stats() or {}).get("peak_bytes_in_use"),
    }
    if case["profiled"]:
        figures["profile"] = profile(step, peaks)
    return figures


def profile(
    step: our_step.OurStep, peaks: Mapping[str, float], top: int = 30
) -> dict[str, Any]:
    """The step's kernels, as the model has them and as they ran; so many by name."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            step(PROFILED_STEPS)
        seen = kernels.measured(Path(folder))
    program = kernels.kernels(hlo.Program(step.compiled.as_text() or ""))
    flops = {name: peaks[name] for name in ("float32", "bfloat16")}
    known = kernels.Peaks(flops, bytes=peaks["copy"], integer=kernels.INTEGER)
    return kernels.beside(program, seen, known, PROFILED_STEPS, top)


HEADER = (
    *("size", "length", "batch", "dtype", "variant", "sequences/s", "ms"),
    *("TFLOP/s", "of sheet", "of measured", "GB", "compile s"),
)


def row(case: Mapping[str, Any]) -> tuple[str, ...]:
    """A case's line of the table."""
    shape = (case["size"], str(case["length"]), str(case["batch"]), case["dtype"])
    head = (*shape, case["fields"]["attention"] + ", packed" * case["packing"])
    if "error" in case:
        return (*head, f"no result: {case['error'][:80]}", *[""] * 6)
    seconds, memory = case["step"]["median"], case["peak_memory"]
    rate = case["flops"] / seconds
    return (
        *head,
        f"{case['sequences'] / seconds:,.0f}",
        f"{1e3 * seconds:.2f}",
        f"{rate / 1e12:.3g}",
        f"{rate / case['sheet']:.1%}" if case["sheet"] else "",
        f"{rate / case['peaks'][case['dtype']]:.1%}",
        f"{memory / 1e9:.1f}" if memory else "",
        f"{case['compile']:.0f}",
    )


def show(case: Mapping[str, Any]) -> str:
    """A finished case as text."""
    lines = [table([row(case)], HEADER)]
    if "peaks" in case:
        shown = ", ".join(
            f"{name} {rate / 1e12:.3g} T{'B' if name == 'copy' else 'FLOP'}/s"
            for name, rate in case["peaks"].items()
        )
        lines.append(f"{case['device']}: measured peaks {shown}")
    if found := case.get("profile"):
        lines.append(show_profile(found))
    return "\n".join(lines)


def show_profile(found: Mapping[str, Any]) -> str:
    """What `profile` found, as text."""
    kinds = "; ".join(
        f"{kind} {real:.2f} ms ({model:.2f})"
        for kind, (model, real) in sorted(found["kinds"].items())
    )
    total = (
        f"kernels {found['measured_ms']:.2f} ms (by the model "
        f"{found['model_ms']:.2f}): {kinds}"
    )
    return f"{total}\n{table(kernels.lines(found), kernels.HEADER)}"


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[dict[str, Any]]]:
    """The options, and a case for each size, length, dtype and attention."""
    parser = Parser(MODULE, __doc__)
    parser.add_argument("--packing", action="store_true", help="packed rows")
    parser.add_argument("--remat", default="none", help="as model.remat")
    parser.add_argument("--epilogue", default="xla", help="as model.epilogue")
    parser.add_argument("--scan_layers", action="store_true")
    parser.add_argument("--no-profile", action="store_false", dest="profiled")
    parser.add_argument("--output", default="", help="JSON; written after each case")
    options, rest = parser.parse_known_args(arguments)
    steps = train_step.parse([*USUAL, *rest, "--torch=", "--no-keras"])
    if options.packing and steps.task != "pretraining":
        raise UserError(f"--packing: rows of --task={steps.task} are not packed here")
    found = []
    for case in train_step.cases(steps):
        for attention in case["attentions"]:
            # cuDNN's has no dropout that could be resumed.
            kept = 0.0 if attention == "cudnn" else case["dropout"]
            fields = {
                "attention": attention,
                "epilogue": options.epilogue,
                "attention_probs_dropout_prob": kept,
                "hidden_dropout_prob": case["dropout"],
                "dtype": case["dtype"],
                "remat": options.remat,
                "scan_layers": options.scan_layers,
            }
            own = {"fields": fields, "limit": steps.limit, "packing": options.packing}
            found.append({**case, **own, "profiled": options.profiled})
    return options, found


@ending.command
def main(arguments: Sequence[str]) -> int:
    """Gives the exit status: 1 where a case failed."""
    options, cases = parse(arguments)
    facts = measuring.begin(MODULE, arguments)
    flags = os.environ.get("XLA_FLAGS", "") + f" {WITHOUT_GRAPHS}" * options.profiled
    done: list[dict[str, Any]] = []
    for case in cases:
        variables = {"XLA_FLAGS": flags.strip()}
        done.append(measuring.in_process(MODULE, case, case["limit"], variables))
        measuring.write(options.output, {**facts, "cases": done})
        print(f"\n{show(done[-1])}", flush=True)
    if len(done) > 1:
        print(f"\n{table(list(map(row, done)), HEADER)}")
    return int(any("error" in case for case in done))


if __name__ == "__main__":
    ending.start(main)
