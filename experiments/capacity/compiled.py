"""A config's programs, compiled for devices that are described and not there.

Started by `plan --compile`, in a process for each case: the vendors'
compilers want their variables before JAX is imported, and may end the process.
"""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from experiments.capacity import devices, hlo, kernels
from experiments.speed import measuring

MODULE = "experiments.capacity.compiled"
LIMIT = 1800.0  # seconds of a case
# How hard the compiler searches for fast code: memory differs by some percent, the time
# that compiling takes by four.
EFFORTS: dict[str, dict[str, Any]] = {
    "quick": {"exec_time_optimization_effort": -1.0},
    "full": {},
}
# What large kernels of a GPU reach of its data sheet.
FLOPS, BANDWIDTH = 0.66, 0.9


def compile_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """Compiles in a process of its own.

    Args:
      case: `config`, `fields` (overrides), `device`, `mode`, `phase` (an index) and
        `effort`.

    Returns:
      The case with what `measure` found, or with `error`.

    Raises:
      UserError: the device is unknown, or its compiler not installed.
    """
    variables = devices.environment(case["device"])
    return measuring.in_process(MODULE, case, LIMIT, variables)


def measure(case: Mapping[str, Any]) -> dict[str, Any]:
    """Traces, lowers and compiles a program, and reads it."""
    import jax

    from bert_jax.training import memory
    from experiments.lib import programs

    # A program without a device cannot be read back from the cache.
    jax.config.update("jax_enable_compilation_cache", False)
    start = time.perf_counter()
    config = programs.load(case["config"], case["fields"])
    there = devices.described(case["device"])
    program = programs.trace(config, there, case["mode"], case["phase"])
    traced = time.perf_counter()
    kind = devices.kind(case["device"])
    lowered = program.traced.lower(lowering_platforms=(kind,))
    found: dict[str, Any] = {
        "mesh": dict(program.mesh.shape),
        "rows": program.rows,
        "length": program.length,
        "state": memory.bytes_per_device(program.donated),
        "seconds_to_trace": traced - start,
    }
    options = {**EFFORTS[case["effort"]], **devices.COMPILER_OPTIONS[kind]}
    try:
        done = lowered.compile(options)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {**found, "exhausted": str(error).partition(": ")[2].splitlines()[0]}
    found["seconds_to_compile"] = time.perf_counter() - traced
    report = done.memory_analysis()
    found["bytes"] = {
        "arguments": report.argument_size_in_bytes,
        "results": report.output_size_in_bytes - report.alias_size_in_bytes,
        "temporaries": report.temp_size_in_bytes,
        "code": report.generated_code_size_in_bytes,
    }
    text = hlo.Program(done.as_text() or "")
    if kind == "cuda":
        found["model"] = _model(text, case["device"])
    return {**found, **_exchanges(text, program.mesh.shape), **_multiplied(text)}


def _model(program: hlo.Program, name: str) -> dict[str, Any]:
    """Milliseconds of a step by the model of `kernels`, by kind, and their number."""
    device = devices.chip(name)
    peaks = kernels.Peaks(
        flops={"bfloat16": FLOPS * device.bfloat16, "float32": FLOPS * device.float32},
        bytes=BANDWIDTH * device.bandwidth,
        integer=kernels.INTEGER,
    )
    found = kernels.kernels(program)
    kinds = kernels.beside(found, {}, peaks, 1)["kinds"]
    return {
        "kernels": sum(kernel.times for kernel in found),
        "ms": {name: model for name, (model, _) in kinds.items()},
    }


def _exchanges(program: hlo.Program, sizes: Mapping[str, int]) -> dict[str, Any]:
    """By kind and axes: how many collectives, and the bytes that a device sends."""
    counts: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    for one in hlo.collectives(program, sizes):
        name = f"{one.kind} over {' and '.join(one.axes) or 'one device'}"
        counts[name] += one.times
        sent[name] += int(one.sent)
    return {
        "collectives": {name: [counts[name], sent[name]] for name in counts},
        "unknown_loops": len(program.unknown_loops),
    }


def _multiplied(program: hlo.Program) -> dict[str, Any]:
    """The matrix products by dtype, and where those in float32 are."""
    found = hlo.products(program)
    counts: Counter[str] = Counter()
    for one in found:
        counts[one.dtype] += one.times
    wide = Counter(one.where for one in found if one.dtype == "float32")
    return {"products": dict(counts), "float32": dict(wide)}
