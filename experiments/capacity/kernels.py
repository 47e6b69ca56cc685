"""A compiled program's kernels: the cost of each by a model, and by a profile.

The model: a kernel takes the longest of its bytes at the memory's speed, its matrix
products at their peak and its integer operations (random bits) at theirs. Bytes are
those of its operands and results, once, so a look-up counts its whole table. An
attention kernel multiplies each query with each key, whatever it
skips. It knows no gaps between kernels, and no FLOPs of other kernels that are opaque
to XLA.
"""

import collections
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.capacity import hlo

# They move no data, or their operands' kernels have done so.
_FREE = {
    *("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "iota"),
    *("after-all", "partition-id", "replica-id", "copy-done", "async-done"),
    *("opt-barrier", "async-update"),
}
_INTEGER = {
    *("add", "subtract", "multiply", "and", "or", "xor", "not", "shift-left"),
    *("shift-right-logical", "shift-right-arithmetic"),
}
# 32-bit integer operations a second of an H100 or H200: 64 a clock in each of 132
# processors (CUDA C++ programming guide, table of arithmetic throughput) at 1.98 GHz.
INTEGER = 132 * 64 * 1.98e9
# Matrix products of the attention kernels of models/kernels/fused.py.
_ATTENTION = {"attention_forward": 2, "attention_backward": 5}


class Peaks(NamedTuple):
    """The rates of a device, per second."""

    flops: Mapping[str, float]  # FLOP/s of matrix products, by dtype
    bytes: float
    integer: float  # operations


class Kernel(NamedTuple):
    """An instruction that the device runs, and what it reads, writes and computes."""

    name: str
    what: str = ""  # the operation, or the target of a custom call
    where: str = ""  # its path in the program
    bytes: int = 0
    flops: int = 0
    dtype: str = ""  # that of the matrix product's left side
    integer: int = 0  # operations on integers, which draw random bits
    times: int = 1  # in a run of the program

    def seconds(self, peaks: Peaks) -> float:
        """Returns the seconds by the model, for one run of the program."""
        known = peaks.flops.get(self.dtype, max(peaks.flops.values()))
        return self.times * max(
            self.bytes / peaks.bytes, self.flops / known, self.integer / peaks.integer
        )


def kernels(
    program: hlo.Program, computation: str = "", times: int = 1
) -> list[Kernel]:
    """Returns the kernels of a program, or of a computation run `times` times."""
    found = []
    others = program.computations[computation or program.entry]
    for own in others.values():
        if own.op == "while":
            body = own.attribute(r"body=%([^\s,]+)")
            found += kernels(program, body, times * program.trips(own))
        elif own.op == "call":
            found += kernels(program, own.attribute(r"to_apply=%([^\s,]+)"), times)
        elif own.op not in _FREE:
            found.append(_kernel(program, own, others, times))
    return found


def _kernel(
    program: hlo.Program,
    own: hlo.Instruction,
    others: Mapping[str, hlo.Instruction],
    times: int,
) -> Kernel:
    moved = sum(hlo.size(others[o].shape) for o in own.operands if o in others)
    result = own.shape
    if own.op == "custom-call" and result.startswith("("):  # less its scratch memory
        result = re.sub(r"[su]8\[\d+\]", "", result)
    what = own.attribute(r'custom_call_target="([^"]*)"') or own.op
    moved += hlo.size(result)
    work = _work(program, own, others)
    return Kernel(own.name, what, own.where, moved, *work, times)


def _work(
    program: hlo.Program, own: hlo.Instruction, others: Mapping[str, hlo.Instruction]
) -> tuple[int, str, int]:
    """Returns FLOPs of matrix products, a left side's dtype, integer operations."""
    if own.op == "fusion":
        inner = program.computations[own.attribute(r"calls=%([^\s,]+)")]
        parts = [_work(program, one, inner) for one in inner.values()]
        flops, dtypes, integer = zip(*parts, strict=True)
        return sum(flops), next(filter(None, dtypes), ""), sum(integer)
    if multiplied := _attention(own, others):
        return multiplied, "bfloat16", 0
    contracted = own.attribute(r"lhs_contracting_dims=\{([\d,]*)\}")
    if own.op == "custom-call":
        contracted = own.attribute(r'"lhs_contracting_dimensions":\[([^\]]*)\]')
    if contracted and own.operands and own.operands[0] in others:
        dtype, sizes = hlo.arrays(others[own.operands[0]].shape)[0]
        _, result = hlo.arrays(own.shape)[0]
        summed = math.prod(sizes[int(i)] for i in re.findall(r"\d+", contracted))
        return 2 * math.prod(result) * summed, dtype, 0
    arrays = hlo.arrays(own.shape)
    if own.op in _INTEGER and arrays and arrays[0][0] in ("u32", "s32"):
        return 0, "", math.prod(arrays[0][1])
    return 0, "", 0


def _attention(own: hlo.Instruction, others: Mapping[str, hlo.Instruction]) -> int:
    """Returns the FLOPs of an attention kernel, and 0 for any other."""
    names = own.where.split("/") if own.op == "custom-call" else ()
    products = sum(_ATTENTION.get(name, 0) for name in names)
    if not products:
        return 0
    # Our own kernels' first is [batch, length, heads, 3, size], the second the ids.
    (_, query), (_, keys) = (hlo.arrays(others[o].shape)[0] for o in own.operands[:2])
    batch, length, heads, *_, size = query
    return 2 * products * batch * heads * length * keys[1] * size


def measured(folder: Path) -> dict[str, float]:
    """Returns seconds by kernel's name, added over a profile that `jax.profiler` wrote.

    On a GPU a kernel that no instruction claims (a CUDA graph's) has its own name.
    """
    import jax

    seconds: collections.Counter[str] = collections.Counter()
    for path in folder.rglob("*.xplane.pb"):
        planes = list(jax.profiler.ProfileData.from_file(str(path)).planes)
        devices = [p for p in planes if p.name.startswith("/device:GPU")]
        for plane in devices or planes:
            for line in plane.lines:
                if devices and not line.name.startswith("Stream"):
                    continue
                for event in line.events:
                    name = dict(event.stats).get("hlo_op")
                    if name or devices:
                        seconds[str(name or event.name)] += event.duration_ns / 1e9
    return dict(seconds)


def beside(
    program: Sequence[Kernel],
    profile: Mapping[str, float],
    peaks: Peaks,
    steps: int,
    top: int = 30,
) -> dict[str, Any]:
    """Compares the model and the profile of `steps` runs of a program.

    Returns:
      `model_ms` and `measured_ms` of a run, by kind too. `kernels` has, for the longest
      by either, the model's and the measured milliseconds, bytes and operations.
    """
    known = {kernel.name: kernel for kernel in program}
    containers = {"while", "call", "conditional"}
    rows = []
    kinds: dict[str, list[float]] = {}
    for name in dict.fromkeys((*known, *profile)):
        if name not in known and name.partition(".")[0] in containers:
            continue  # its own kernels are listed
        kernel = known.get(name, Kernel(name))
        model = 1e3 * kernel.seconds(peaks)
        real = 1e3 * profile.get(name, 0.0) / steps
        kind = "matrix products" if kernel.flops else "everything else"
        if name not in known:
            kind = "not in the program"
        for index, value in enumerate((model, real)):
            kinds.setdefault(kind, [0.0, 0.0])[index] += value
        rows.append({**kernel._asdict(), "model_ms": model, "measured_ms": real})
    rows.sort(key=lambda row: -max(row["model_ms"], row["measured_ms"]))
    return {
        "model_ms": sum(model for model, _ in kinds.values()),
        "measured_ms": sum(real for _, real in kinds.values()),
        "kinds": kinds,
        "kernels": rows[:top],
    }


def lines(longest: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Returns `beside`'s `kernels` as rows of a table, under `HEADER`."""
    return [
        (
            f"{row['measured_ms']:.3f}",
            f"{row['model_ms']:.3f}",
            f"{row['bytes'] * row['times'] / 1e6:,.1f}",
            f"{row['flops'] * row['times'] / 1e9:,.1f}",
            f"{row['integer'] * row['times'] / 1e9:,.2f}",
            *(row["what"][:20], row["name"][:32], row["where"][-60:]),
        )
        for row in longest
    ]


HEADER = ("ms", "model ms", "MB", "GFLOP", "G int", "what", "kernel", "where")
