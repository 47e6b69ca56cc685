"""Readers of a compiled program's text.

They find its instructions, how often each runs, its matrix products, and the data that
its devices send to each other.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

_INSTRUCTION = re.compile(
    r"\s*(?:ROOT )?%(?P<name>\S+) = (?P<shape>\(.*?\)|\S+) (?P<op>[\w-]+)\((?P<rest>.*)"
)
_COMPUTATION = re.compile(r"(?P<entry>ENTRY )?%(?P<name>\S+) \(.*\{$")
_ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")
_NUMBER = re.compile("pred|bf|f|s|u|c")  # the start of its type's name
_DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
_CALLED = re.compile(
    r"(?:calls|to_apply|body|true_computation|false_computation)=%([^\s,]+)"
    r"|branch_computations=\{([^}]*)\}"
)

COLLECTIVES = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all"),
    *("collective-permute", "collective-broadcast", "ragged-all-to-all"),
)


class Instruction(NamedTuple):
    """A line of the program."""

    name: str
    shape: str
    op: str
    rest: str  # operands and attributes

    @property
    def operands(self) -> list[str]:
        depth, end = 1, 0
        while depth and end < len(self.rest):
            depth += {"(": 1, ")": -1}.get(self.rest[end], 0)
            end += 1
        return re.findall(r"%([^\s,(){}]+)", self.rest[:end])

    @property
    def where(self) -> str:
        """Its path in the traced function."""
        return self.attribute(r'op_name="([^"]*)"')

    def attribute(self, pattern: str) -> str:
        """Returns the pattern's group, or an empty string."""
        found = re.search(pattern, self.rest)
        return found[1] if found else ""


class Program:
    """The computations of `compiled.as_text()`, each a dict of instructions by name.

    Attributes:
      unknown_loops: Loops for which the text does not specify how often they run. Their
        instructions count once.

    Raises:
      ValueError: It is not HLO text.
    """

    def __init__(self, text: str):
        self.computations: dict[str, dict[str, Instruction]] = {}
        self.entry = ""
        self.unknown_loops: set[str] = set()
        current: dict[str, Instruction] = {}
        for line in text.splitlines():
            if start := _COMPUTATION.match(line):
                current = self.computations.setdefault(start["name"], {})
                self.entry = start["name"] if start["entry"] else self.entry
            elif found := _INSTRUCTION.match(line):
                current[found["name"]] = Instruction(**found.groupdict())
        if not self.entry:
            raise ValueError("no HLO text: it has no ENTRY computation")

    def walk(
        self, computation: str = "", times: int = 1
    ) -> Iterator[tuple[Instruction, Mapping[str, Instruction], int]]:
        """Yields every instruction that runs, those inside fusions too.

        Each comes with the others of its computation, and how often it runs.
        """
        own = self.computations[computation or self.entry]
        for one in own.values():
            yield one, own, times
            again = times * self.trips(one) if one.op == "while" else times
            for name, branches in _CALLED.findall(one.rest):
                for called in re.findall(r"[^\s,%]+", name or branches):
                    if called in self.computations:
                        yield from self.walk(called, again)

    def trips(self, loop: Instruction) -> int:
        """Returns how often a loop's body runs, and 1 for one of `unknown_loops`."""
        if known := loop.attribute(r'known_trip_count":\s*\{"n":\s*"(\d+)"'):
            return int(known)
        # A TPU's program has JAX's counter compared with the number, maybe in a fusion.
        condition = loop.attribute(r"condition=%([^\s,]+)")
        inner = self.walk(condition) if condition in self.computations else ()
        every = [one for one, _, _ in inner]
        compared = [one.rest for one in every if one.op == "compare"]
        limits = [
            one.rest.partition(")")[0]
            for one in every
            if one.op == "constant" and one.shape.startswith("s32[]")
        ]
        if len(compared) == len(limits) == 1 and "direction=LT" in compared[0]:
            return int(limits[0])
        self.unknown_loops.add(loop.name)
        return 1


def arrays(shape: str) -> list[tuple[str, list[int]]]:
    """Returns element type and sizes of each array of a shape, maybe a tuple's."""
    return [
        (_DTYPES.get(dtype, dtype), [int(size) for size in sizes.split(",") if size])
        for dtype, sizes in _ARRAY.findall(shape)
        if _NUMBER.match(dtype)
    ]


def size(shape: str) -> int:
    """Returns the bytes of a shape."""
    return sum(map(_bytes, arrays(shape)))


def _bytes(array: tuple[str, list[int]]) -> int:
    """Returns the bytes of one of `arrays`. An element takes at least one."""
    bits = re.search(r"\d+", array[0])  # none in pred
    return math.prod(array[1]) * max(1, int(bits[0]) // 8 if bits else 1)


class Product(NamedTuple):
    """A matrix product as the device multiplies it."""

    dtype: str  # that of its left side
    where: str
    times: int


def products(program: Program) -> list[Product]:
    """Returns the matrix products. On a TPU they are convolutions."""
    found = []
    for one, others, times in program.walk():
        multiplies = one.op in ("dot", "convolution") or (
            one.op == "custom-call" and "lhs_contracting_dimensions" in one.rest
        )
        if multiplies and one.operands and one.operands[0] in others:
            dtype, _ = arrays(others[one.operands[0]].shape)[0]
            found.append(Product(dtype, one.where, times))
    return found


def cycles(program: Program) -> int:
    """Returns a TPU compiler's estimate of the cycles that the program takes.

    It has none of kernels that are written in Pallas.
    """
    pattern = r'"estimated_cycles":"(\d+)"'
    return sum(n * int(one.attribute(pattern) or 0) for one, _, n in program.walk())


class Collective(NamedTuple):
    """The data that devices send to each other in one instruction."""

    kind: str
    axes: tuple[str, ...]  # axes of the mesh, along which they differ
    devices: int  # number that exchange with each other
    bytes: int  # bytes of the result on each device
    times: int

    @property
    def sent(self) -> float:
        """Bytes that each device sends in all its runs, by rings."""
        n = self.devices
        share = {
            "all-reduce": 2 * (n - 1) / n,
            "all-gather": (n - 1) / n,
            "reduce-scatter": n - 1.0,
            "all-to-all": (n - 1) / n,
        }
        return share.get(self.kind, 1.0) * self.bytes * self.times


def collectives(program: Program, sizes: Mapping[str, int]) -> list[Collective]:
    """Returns the collectives among devices in a mesh of these axes.

    Raises:
      ValueError: A collective names its devices in a form that is not known here.
    """
    found = []
    for one, _, times in program.walk():
        kind = one.op.removesuffix("-start")
        if kind not in COLLECTIVES:
            continue
        groups = _groups(one.rest, math.prod(sizes.values()))
        results = arrays(one.shape)
        if one.op.endswith("-start") and kind != "all-reduce":
            count = len(one.operands)  # which the tuple has before results and marks
            results = results[count : 2 * count]
        axes, devices = _axes(groups, sizes), max(map(len, groups))
        sent = sum(map(_bytes, results))
        found.append(Collective(kind, axes, devices, sent, times))
    return found


def _groups(rest: str, count: int) -> list[list[int]]:
    """Returns devices that exchange with each other, by their positions in the mesh.

    They are one group, which the others are like, or all pairs of a permutation.
    """
    if pairs := re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)+)\}", rest):
        return [_numbers(pair) for pair in re.findall(r"\{([\d,]+)\}", pairs[1])]
    if found := re.search(r"replica_groups=\{\{([\d,]+)\}", rest):
        return [_numbers(found[1])]
    if "replica_groups={}" in rest:
        return [list(range(count))]
    form = r"replica_groups=\[(\d+,\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?"
    if found := re.search(form, rest):
        return [_places(found[2], found[3]).reshape(_numbers(found[1]))[0].tolist()]
    form = (
        r"replica_groups=mesh\[(?P<sizes>.*?)\]"
        r"(?:, device_ids=\(\[(?P<shape>[\d,]+)\](?:T\((?P<order>[\d,]+)\))?\))?"
        r" \{(?P<named>[^}:]*)\}"
    )
    if found := re.search(form, rest):
        every = {k: int(n) for k, n in re.findall(r"'(\w+)'=(\d+)", found["sizes"])}
        named = re.findall(r"'(\w+)'", found["named"])
        if set(named) <= set(every):
            shape = found["shape"] or str(math.prod(every.values()))
            places = _places(shape, found["order"]).reshape(list(every.values()))
            index = tuple(slice(None) if axis in named else 0 for axis in every)
            return [places[index].ravel().tolist()]
    raise ValueError(f"no device groups in a known form: {rest[:300]}")


def _places(shape: str, order: str | None) -> np.ndarray:
    """Numbers from 0 in a shape whose axes are then put in an order."""
    sizes = _numbers(shape)
    places = np.arange(math.prod(sizes)).reshape(sizes)
    return places.transpose(_numbers(order)) if order else places


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _axes(groups: Sequence[Sequence[int]], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the axes along which the positions of a group differ in a mesh."""
    apart = set()
    for group in groups:
        where = np.unravel_index(np.asarray(group), tuple(sizes.values()))
        apart |= {a for a, own in zip(sizes, where, strict=True) if len({*own}) > 1}
    return tuple(axis for axis in sizes if axis in apart)
