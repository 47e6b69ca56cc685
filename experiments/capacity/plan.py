"""The devices that a training run needs, and how long it takes on them.

    python -m experiments.capacity.plan --config=configs/large.py --device=v5e:4x4 \
        [--efficiency=0.4] [--effort=full] [--config.FIELD=VALUE ...]

A TPU slice is named by its topology, as in v5e:4x4, v5p:4x4x4 and v6e:8x8, GPUs by
their number, as in h100 (one) and h200:8. The vendor's compiler (the extra `ahead`,
which needs no device) compiles the run's own step for them. Nothing is computed or
allocated, and no data is read.

It prints the bytes of a device by the compiler's report, whether they fit, what devices
exchange, and the matrix products by dtype. Time is model FLOPs at a fraction of the
peak that has to be assumed (--efficiency, whose measured value is a run's `mfu`),
without the traffic between devices.
--effort=quick, the default, searches less for fast code: four times sooner, and memory
within some percent of --effort=full, with which a run compiles.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax

from bert_jax.commands import command_line
from bert_jax.commands.command_line import Parser, with_fields
from bert_jax.commands.report import format_duration
from bert_jax.errors import UserError
from bert_jax.runtime.terminal import live_line
from bert_jax.training.sharding import bytes_per_device
from experiments.capacity import devices, hlo
from experiments.lib import programs
from experiments.lib.programs import Program

USABLE = {"tpu": 1.0, "cuda": 0.9}  # fractions of the memory that a program can use
SAVING = (
    "more train.micro_batches, --config.model.remat=full with "
    "--config.model.scan_layers=True, a larger mesh.fsdp"
)


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Prints the plan and returns the exit status, 2 where it does not fit."""
    options, fields = parse_options(argv)
    devices.prepare_compiler(options.device)
    config = programs.load(options.config, fields)
    task, chip = programs.task_of(config), devices.chip_of(options.device)
    there = devices.describe_devices(options.device)
    peak = chip.bfloat16 if config.model.dtype == "bfloat16" else chip.float32
    whole, fits = 0.0, True
    for index, phase in enumerate(task.phases()):
        program = programs.trace_step(config, there, index)
        said = f"compiling the step of phase {index + 1}"
        with live_line(desc=said, bar_format="{desc} ...", leave=False):
            lines, phase_fits = describe_step(options, program)
        fits &= phase_fits
        # `cost_analysis` would be less: it has a loop's body once and no kernel in
        # Pallas, and nothing of a GPU that is not there.
        flops = task.flops(phase.shapes)
        seconds = flops / (len(there) * peak * options.efficiency)
        whole += phase.steps * seconds
        lines.append(f"{flops:.4g} FLOPs a step (3 x forward): {1e3 * seconds:.2f} ms")
        print("\n  ".join(lines), flush=True)
    print(
        f"the recipe: {format_duration(whole)} at {options.efficiency:.0%} of "
        f"{peak / 1e12:g} TFLOP/s ({chip.source}); traffic, evaluation and saving apart"
    )
    if not fits:
        raise UserError(f"does not fit; what saves memory: {SAVING}")
    return 0


def parse_options(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Returns the options, and the config's fields.

    Raises:
      UserError: An option is missing, unknown or out of its range.
    """
    parser = Parser("experiments.capacity.plan", __doc__)
    parser.add_argument("--config", required=True, help="a config file")
    parser.add_argument("--device", required=True, help=devices.EXAMPLES)
    fraction = "fraction of the peak, in (0, 1]"
    parser.add_argument("--efficiency", type=float, default=0.4, help=fraction)
    parser.add_argument("--effort", choices=devices.EFFORTS, default="quick")
    options, fields = with_fields(parser, argv)
    devices.platform_of(options.device)
    if not 0 < options.efficiency <= 1:
        raise UserError(f"--efficiency={options.efficiency:g}: in (0, 1]")
    return options, fields


def describe_step(
    options: argparse.Namespace, program: Program
) -> tuple[list[str], bool]:
    """Compiles a step, and describes it in lines. Returns whether it fits, too."""
    axes = " ".join(f"{axis}={size}" for axis, size in program.mesh.shape.items())
    lines = [
        f"{options.device} ({axes}): a step of {program.rows:,} rows of "
        f"{program.length}"
    ]
    start = time.perf_counter()
    try:
        step = devices.compile_for(options.device, program.traced, options.effort)
    except jax.errors.JaxRuntimeError as error:  # a TPU's compiler knows its memory
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        why = str(error).partition(": ")[2].splitlines()[0]
        return [*lines, f"does not fit: {why}"], False
    lines[0] += f", compiled in {time.perf_counter() - start:.1f} s ({options.effort})"
    report: Any = step.memory_analysis()
    sizes = {
        "arguments": report.argument_size_in_bytes,
        "results": report.output_size_in_bytes - report.alias_size_in_bytes,
        "temporaries": report.temp_size_in_bytes,
        "code": report.generated_code_size_in_bytes,
    }
    memory = devices.chip_of(options.device).memory
    usable = USABLE[devices.platform_of(options.device)]
    fits = sum(sizes.values()) <= usable * memory
    parts = ", ".join(f"{name} {size / 1e9:.3f}" for name, size in sizes.items())
    lines.append(
        f"{sum(sizes.values()) / 1e9:.3f} GB of a device's {memory / 1e9:.1f}: "
        f"{'fits' if fits else 'does not fit'} ({parts}; the state's "
        f"{bytes_per_device(program.donated) / 1e9:.3f} is updated in place)"
    )
    text = step.as_text() or ""
    collectives = hlo.count_collectives(text, program.mesh.shape)
    for (kind, along), count in collectives.items():
        lines.append(f"{kind} over {' and '.join(along) or 'one device'}: {count}")
    products = hlo.find_products(text)
    dtypes = Counter(dtype for dtype, _ in products)
    named = ", ".join(f"{dtype} {count}" for dtype, count in dtypes.items())
    lines.append(f"matrix products (those of a loop once): {named}")
    if "bfloat16" in dtypes:
        wide = [path for dtype, path in products if dtype == "float32"]
        lines += [f"  float32: {path}" for path in dict.fromkeys(wide)]
    return lines, fits


if __name__ == "__main__":
    command_line.start(main)
