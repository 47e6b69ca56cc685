"""The devices that a training run needs, and how long it takes on N of them.

    python -m experiments.capacity.plan --config=configs/large.py --device=v5e:4x4 \
        [--efficiency=0.4] [--config.FIELD=VALUE ...]
    python -m experiments.capacity.plan --config=configs/large.py \
        --device=v5e:4x4 --compile [--effort=full] [--config.FIELD=VALUE ...]

A TPU slice is named by its topology, as in v5e:4x4, v5p:4x4x4 and v6e:8x8. For GPUs,
--devices sets how many (1). Nothing is computed or allocated, and no data is read.

By itself it works with formulas, anywhere. Memory is parameters, optimizer, gradients
and the arrays that autodiff keeps. Time is model FLOPs at a fraction of the peak that
has to be assumed (--efficiency, whose measured value is a run's `mfu`), and the reading
and writing of parameters and moments, without the traffic between devices.

With --compile the vendor's compiler (the extra `ahead`, which needs no device) compiles
the run's own step for a slice, or for one h100 or h200. It prints bytes next to the
formulas', whether they fit, the data that devices send each other, matrix products by
dtype, and for a GPU a model of the step's time.
--effort=quick, the default, searches less for fast code: four times sooner, and memory
within some percent of --effort=full, with which a run compiles.
"""

import argparse
from collections.abc import Sequence

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.models.heads import count_parameters
from bert_jax.runtime.terminal import live_line
from bert_jax.training.sharding import bytes_per_device
from experiments.capacity import compiled, devices, estimate
from experiments.capacity.devices import DEVICES, USABLE, Device
from experiments.lib import command_line, programs
from experiments.lib.command_line import Parser, with_fields
from experiments.lib.report import Section, Table, duration, plain

MOST_DEVICES = 65536  # that JAX can simulate here in seconds


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Prints the plan and returns the exit status, 2 where it does not fit."""
    options, fields = parse(argv)
    simulate(options.devices)
    config = programs.task_of(programs.load(options.config, fields)).config
    if options.compile:
        return 0 if fits_compiled(options, fields, config) else 2
    name = devices.family(options.device)
    text, need = report(config, name, options.efficiency)
    print(text)
    memory = DEVICES[name].memory
    if need > memory * USABLE:
        raise UserError(
            f"does not fit: {need / 1e9:.1f} GB of each device's {memory / 1e9:g} GB, "
            f"of which {memory * USABLE / 1e9:.1f} can be used; what saves memory: "
            "more train.micro_batches, --config.model.remat=full with "
            "--config.model.scan_layers=True, a larger mesh.fsdp"
        )
    return 0


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Returns the options, and the config's fields.

    Raises:
      UserError: An option is missing, unknown or out of its range.
    """
    parser = Parser("experiments.capacity.plan", __doc__)
    parser.add_argument("--config", required=True, help="a config file")
    known = f"one of {', '.join(DEVICES)}; a slice as v5e:4x4"
    parser.add_argument("--device", required=True, help=known)
    number = "how many (1); a slice says it itself"
    parser.add_argument("--devices", type=int, help=number)
    share = "share of the peak, in (0, 1]"
    parser.add_argument("--efficiency", type=float, default=0.4, help=share)
    vendors = "with the vendor's compiler"
    parser.add_argument("--compile", action="store_true", help=vendors)
    parser.add_argument("--effort", choices=compiled.EFFORTS, default="quick")
    options, fields = with_fields(parser, argv)
    device = options.device
    count = devices.count(device)
    if devices.family(device) not in DEVICES or (":" in device and not count):
        raise UserError(f"--device={device}: {known}")
    if options.compile and devices.chip(device).compiler == "cuda":
        count = 1  # a card
    if count and options.devices not in (None, count):
        raise UserError(f"--devices={options.devices}: {device} has {count}")
    if options.compile:
        devices.kind(device)
    chips = count or (1 if options.devices is None else options.devices)
    if not 1 <= chips <= MOST_DEVICES:
        raise UserError(f"--devices={chips}: a number from 1 to {MOST_DEVICES:,}")
    options.devices = chips
    if not 0 < options.efficiency <= 1:
        raise UserError(f"--efficiency={options.efficiency:g}: in (0, 1]")
    return options, fields


def simulate(count: int) -> None:
    """Makes JAX simulate `count` devices. It must be called before JAX is used."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", count)


def fits_compiled(
    options: argparse.Namespace, fields: Sequence[str], config: ConfigDict
) -> bool:
    """Compiles every phase and prints it. Returns whether all of them fit."""
    kind = devices.chip(options.device).compiler
    mesh = estimate.mesh_of(config, kind)
    case = {"config": options.config, "fields": fields, "device": options.device}
    case |= {"effort": options.effort, "mode": "train"}
    fits = True
    for phase in range(len(programs.task_of(config).phases())):
        said = f"compiling the step of phase {phase + 1}"
        with live_line(desc=said, bar_format="{desc} ...", leave=False):
            found = compiled.compile_case({**case, "phase": phase})
        held = estimate.memory(config, mesh, phase, kind)
        formulas = sum(line.value for line in held)
        print(f"\n{compiled.lines(found, formulas)}", flush=True)
        fits &= found["fits"]
    return fits


def report(config: ConfigDict, name: str, efficiency: float) -> tuple[str, float]:
    """Formats memory, FLOPs and time, with the formulas.

    Returns:
      The text, and the bytes of a device in the phase that needs most.

    Raises:
      UserError: The mesh does not fit the devices, or the batch the mesh.
    """
    device = DEVICES[name]
    mesh = estimate.mesh_of(config, device.compiler)
    task, model = programs.task_of(config), config.model
    params = count_parameters(estimate.state(config, mesh).params)
    axes = " ".join(f"{axis}={size}" for axis, size in mesh.shape.items())
    head = [
        f"{mesh.size} x {name} ({axes}): {params:,} parameters with heads; "
        f"{model.dtype} matmuls, remat {model.remat}, scan_layers {model.scan_layers}",
        f"{name}: {device.bfloat16 / 1e12:g} TFLOP/s in bfloat16, "
        f"{device.float32 / 1e12:g} in float32, {device.memory / 1e9:g} GB at "
        f"{device.bandwidth / 1e9:g} GB/s ({device.source})",
    ]
    parts: list[str | Table] = ["\n".join(head)]
    whole = most = 0.0
    for index, phase in enumerate(task.phases()):
        flops = task.flops(phase.shapes)
        times = seconds(config, device, mesh, flops, efficiency)
        step = sum(line.value for line in times)
        whole += phase.steps * step
        length = phase.shapes["input_ids"][-1]
        held = estimate.memory(config, mesh, index, device.compiler)
        room = f"of {device.memory / 1e9:g} GB; {1 - USABLE:.0%} is left to XLA"
        together = sum(line.value for line in held)
        most = max(most, together)
        held.append(estimate.Line("together", together, room))
        sizes = [(x.name, f"{x.value / 1e9:.3f} GB", x.formula) for x in held]
        spent = [(x.name, f"{x.value * 1e3:.2f} ms", x.formula) for x in times]
        spent.append(("step", f"{step * 1e3:.2f} ms", "without traffic"))
        parts += [
            f"{phase.steps:,} steps of {phase.batch_size:,} at length {length}: "
            f"{flops:.4g} FLOPs a step (3 x forward, matrix products)",
            Table(sizes, ("memory of a device", "", "")),
            Table(spent, ("time of a step", "", "")),
        ]
    recipe = f"the recipe: {duration(whole)}, evaluation, saving and traffic apart"
    return plain([Section("", [*parts, recipe])]), most


def seconds(
    config: ConfigDict, device: Device, mesh: Mesh, flops: float, efficiency: float
) -> list[estimate.Line]:
    """Returns the parts of a step's time, without the traffic between devices."""
    peak = device.bfloat16 if config.model.dtype == "bfloat16" else device.float32
    again = 1 if config.model.remat == estimate.NO_REMAT else 4 / 3
    own = estimate.state(config, mesh)
    # Parameters and moments are read and written, gradients read.
    moved = 2 * bytes_per_device(own) + bytes_per_device(own.params)
    products = flops * again / (mesh.size * peak * efficiency)
    more = " x 4/3" if again > 1 else ""
    by = f"FLOPs{more} / {mesh.size} / {peak / 1e12:g} TFLOP/s / {efficiency:g}"
    update = f"{moved / 1e9:.3f} GB / {device.bandwidth / 1e9:g} GB/s"
    return [
        estimate.Line("matrix products", products, by),
        estimate.Line("optimizer", moved / device.bandwidth, update),
    ]


if __name__ == "__main__":
    command_line.start(main)
