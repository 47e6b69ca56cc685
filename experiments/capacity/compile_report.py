"""What the vendor's compiler says of a config's steps, beside the formulas."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.runtime.terminal import working
from experiments.capacity import compiled, devices, estimate
from experiments.lib import programs

GIB = 2**30


def phases(
    case: Mapping[str, Any], change: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """The training step of each phase, compiled.

    Args:
      case: `config`, `fields`, `device` and `effort`, as `compiled` takes them.
      change: more fields.

    Yields:
      What `compiled` says; the `change`; whether it `fits`; by the `formulas` the bytes
      of a device.

    Raises:
      UserError: the compiler's process failed.
    """
    fields = [*case["fields"], *change]
    task = programs.task_of(programs.load(case["config"], fields))
    kind = devices.chip(case["device"]).compiler
    for index in range(len(task.phases())):
        phase = {"fields": fields, "mode": "train", "phase": index}
        with working(f"compiling the step of phase {index + 1} {' '.join(change)}"):
            found = compiled.compile_case({**case, **phase})
        if "error" in found:
            raise UserError(found["error"])
        formulas = estimate.needed(task.config, index, kind)
        yield {**found, "change": change, "fits": fits(found), "formulas": formulas}


def show(case: Mapping[str, Any], changes: Sequence[list[str]]) -> bool:
    """Compiles every phase and prints it; if one does not fit, the changes in turn.

    Returns:
      Whether the config fits as it is.
    """
    if _all_fit(case, ()):
        return True
    for change in changes:
        print(f"\nwith {' '.join(change)}:")
        if _all_fit(case, change):
            return False
    print("\nno change that is known fits: more devices or a smaller batch are needed")
    return False


def _all_fit(case: Mapping[str, Any], change: Sequence[str]) -> bool:
    """Prints every phase."""
    every = []
    for found in phases(case, change):
        print(f"\n{lines(found)}", flush=True)
        every.append(found["fits"])
    return all(every)


def total(found: Mapping[str, Any]) -> int:
    """Bytes that a compiled program takes of a device."""
    return sum(found["bytes"].values())


def fits(found: Mapping[str, Any]) -> bool:
    """Whether a device has the memory; a TPU's compiler knows it exactly."""
    if "exhausted" in found:
        return False
    device = devices.chip(found["device"])
    # JAX cannot have all of a GPU's.
    share = devices.USABLE if device.compiler == "cuda" else GIB / 1e9
    return total(found) <= share * device.memory


def lines(found: Mapping[str, Any]) -> str:
    """A compiled step in words; `found` is one of `phases`."""
    formulas = found["formulas"]
    axes = " ".join(f"{axis}={size}" for axis, size in found["mesh"].items())
    text = [
        f"{found['device']} ({axes}): a step of {found['rows']:,} rows of "
        f"{found['length']}, traced in {found['seconds_to_trace']:.1f} s"
    ]
    if "exhausted" in found:
        said = f"  does not fit: {found['exhausted']}"
        return "\n".join([*text, said, _formulas(formulas)])
    parts = ", ".join(f"{name} {n / 1e9:.3f}" for name, n in found["bytes"].items())
    whole, state = total(found), found["state"] / 1e9
    said = "fits" if found["fits"] else "does not fit"
    memory = devices.chip(found["device"]).memory / 1e9
    text += [
        f"  compiled in {found['seconds_to_compile']:.1f} s (effort {found['effort']})",
        f"  {whole / 1e9:.3f} GB of a device's {memory:g}: {said} ({parts}; the "
        f"state's {state:.3f} is updated in place)",
        f"{_formulas(formulas)}, {formulas / whole - 1:+.1%}",
    ]
    if "model" in found:
        text.append(_model(found))
    for name, (number, sent) in found["collectives"].items():
        text.append(f"  {name}: {number}, {sent / 1e6:,.1f} MB sent by a device")
    if found["unknown_loops"]:
        text.append(
            f"  {found['unknown_loops']} loop(s) of unknown length counted once"
        )
    products = ", ".join(f"{dtype} {n}" for dtype, n in found["products"].items())
    text.append(f"  matrix products: {products}")
    if found["products"].get("bfloat16"):
        text += [f"    float32: {where}" for where in found["float32"]]
    return "\n".join(text)


def _model(found: Mapping[str, Any]) -> str:
    times = found["model"]["ms"]
    whole = sum(times.values())
    parts = ", ".join(f"{name} {ms:.1f}" for name, ms in times.items())
    return (
        f"  a model of its {found['model']['kernels']:,} kernels: {whole:.1f} ms "
        f"({parts}), {1e3 * found['rows'] / whole:,.0f} rows/s; not measured, without "
        f"gaps, at {compiled.FLOPS:.0%} of the sheet's FLOP/s and "
        f"{compiled.BANDWIDTH:.0%} of its bandwidth"
    )


def _formulas(bytes_: float) -> str:
    return f"  by the formulas {bytes_ / 1e9:.3f} GB"
