"""A config's programs, compiled for devices that are described and not there.

Each is compiled in its own process: the vendors' compilers need their variables before
JAX is imported, and may end the process.
"""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import UserError
from experiments.capacity import devices, hlo, kernels
from experiments.speed import sides

LIMIT = 1800.0  # seconds of a case
GIB = 2**30
# How hard the compiler searches for fast code: memory differs by some percent, the time
# that compiling takes by four.
EFFORTS: dict[str, dict[str, Any]] = {
    "quick": {"exec_time_optimization_effort": -1.0},
    "full": {},
}
# What large products and copies reach of a GPU's data sheet: on an H100, 755 TFLOP/s
# and 2.98 TB/s (experiments/results/gpu.txt).
FLOPS, BANDWIDTH = 0.76, 0.89


def compile_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """Compiles a case in a separate process.

    Args:
      case: Mapping of `config`, `fields` (overrides), `device`, `mode`, `phase` (an
        index) and `effort`.

    Returns:
      The case with the results of `measure`, and whether it `fits`.

    Raises:
      UserError: The device is unknown, its compiler not installed, or it failed.
    """
    variables = devices.environment(case["device"])
    try:
        with sides.Process(__name__, case, LIMIT, variables) as process:
            found = {**case, **process.found}
    except RuntimeError as error:
        raise UserError(str(error)) from error
    return {**found, "fits": fits(found)}


def prepare(case: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measures in the process that `compile_case` starts. There are no sides."""
    return {}, measure(case)


def measure(case: Mapping[str, Any]) -> dict[str, Any]:
    """Traces, lowers and compiles a program, and reads it."""
    import jax

    from bert_jax.training.sharding import bytes_per_device
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
        "state": bytes_per_device(program.donated),
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
        found["model"] = _model(text, devices.chip(case["device"]))
    else:
        found["cycles"] = hlo.cycles(text)
    counts, sent = Counter[str](), Counter[str]()
    for one in hlo.collectives(text, program.mesh.shape):
        name = f"{one.kind} over {' and '.join(one.axes) or 'one device'}"
        counts[name] += one.times
        sent[name] += int(one.sent)
    products, wide = Counter[str](), Counter[str]()
    for product in hlo.products(text):
        products[product.dtype] += product.times
        wide[product.where] += product.dtype == "float32"
    return {
        **found,
        "collectives": {name: [counts[name], sent[name]] for name in counts},
        "unknown_loops": len(text.unknown_loops),
        "products": dict(products),
        "float32": [where for where, count in wide.items() if count],
    }


def _model(program: hlo.Program, device: devices.Device) -> dict[str, Any]:
    """Returns the milliseconds of a step by the model of `kernels`, by kind.

    They come with the number of kernels, and the bytes that these read and write.
    """
    flops = {"bfloat16": FLOPS * device.bfloat16, "float32": FLOPS * device.float32}
    peaks = kernels.Peaks(
        flops=flops,
        bytes=BANDWIDTH * device.bandwidth,
        integer=kernels.INTEGER,
    )
    found = kernels.kernels(program)
    kinds = kernels.beside(found, {}, peaks, 1)["kinds"]
    return {
        "kernels": sum(kernel.times for kernel in found),
        "bytes": sum(kernel.times * kernel.bytes for kernel in found),
        "ms": {name: model for name, (model, _) in kinds.items()},
    }


def fits(found: Mapping[str, Any]) -> bool:
    """Whether a device has the memory. A TPU's compiler knows it exactly."""
    if "exhausted" in found:
        return False
    device = devices.chip(found["device"])
    # JAX cannot have all of a GPU's.
    share = devices.USABLE if device.compiler == "cuda" else GIB / 1e9
    return sum(found["bytes"].values()) <= share * device.memory


def lines(found: Mapping[str, Any], formulas: float) -> str:
    """Describes the results of `compile_case`.

    Args:
      formulas: Bytes of a device by `estimate`.
    """
    axes = " ".join(f"{axis}={size}" for axis, size in found["mesh"].items())
    text = [
        f"{found['device']} ({axes}): a step of {found['rows']:,} rows of "
        f"{found['length']}, traced in {found['seconds_to_trace']:.1f} s"
    ]
    by_formulas = f"  by the formulas {formulas / 1e9:.3f} GB"
    if "exhausted" in found:
        return "\n".join([*text, f"  does not fit: {found['exhausted']}", by_formulas])
    parts = ", ".join(f"{name} {n / 1e9:.3f}" for name, n in found["bytes"].items())
    whole = sum(found["bytes"].values())
    memory = devices.chip(found["device"]).memory / 1e9
    text += [
        f"  compiled in {found['seconds_to_compile']:.1f} s (effort {found['effort']})",
        f"  {whole / 1e9:.3f} GB of a device's {memory:g}: "
        f"{'fits' if found['fits'] else 'does not fit'} ({parts}; the state's "
        f"{found['state'] / 1e9:.3f} is updated in place)",
        f"{by_formulas}, {formulas / whole - 1:+.1%}",
    ]
    if "model" in found:
        times = found["model"]["ms"]
        step = sum(times.values())
        parts = ", ".join(f"{name} {ms:.1f}" for name, ms in times.items())
        text.append(
            f"  a model of its {found['model']['kernels']:,} kernels, which move "
            f"{found['model']['bytes'] / 1e9:.1f} GB: {step:.1f} ms ({parts}), "
            f"{1e3 * found['rows'] / step:,.0f} rows/s; not measured, without gaps, at "
            f"{FLOPS:.0%} of the sheet's FLOP/s and {BANDWIDTH:.0%} of its bandwidth"
        )
    if "cycles" in found:
        text.append(
            f"  {found['cycles']:,} cycles by the compiler's estimate, which leaves "
            "out kernels in Pallas"
        )
    for name, (number, sent) in found["collectives"].items():
        text.append(f"  {name}: {number}, {sent / 1e6:,.1f} MB sent by a device")
    if count := found["unknown_loops"]:
        text.append(f"  {count} loop(s) of unknown length counted once")
    products = ", ".join(f"{dtype} {n}" for dtype, n in found["products"].items())
    text.append(f"  matrix products: {products}")
    if found["products"].get("bfloat16"):
        text += [f"    float32: {where}" for where in found["float32"]]
    return "\n".join(text)
