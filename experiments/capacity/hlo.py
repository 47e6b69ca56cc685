"""A compiled program's matrix products and collectives, by its text.

JAX counts neither: `cost_analysis` has sums only, and none for a GPU that is not there.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping

import numpy as np

_INSTRUCTION = re.compile(
    r"\s*(?:ROOT )?%(?P<name>\S+) = \(*(?P<dtype>\w+)\[.*? (?P<op>[a-z-]+)"
    r"\((?:%(?P<first>[^\s,)]+))?(?P<rest>.*)"
)
_DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
COLLECTIVES = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all"),
    *("collective-permute", "collective-broadcast", "ragged-all-to-all"),
)


def find_products(text: str) -> list[tuple[str, str]]:
    """Returns the dtype of each product's left side, and its path in the function.

    On a TPU products are convolutions. Those in a loop's body are there once.
    """
    lines = [found for line in text.splitlines() if (found := _INSTRUCTION.match(line))]
    dtypes = {line["name"]: line["dtype"] for line in lines}
    products = []
    for line in lines:
        is_library_call = "lhs_contracting_dimensions" in line["rest"]
        if line["op"] in ("dot", "convolution") or is_library_call:
            path = re.search(r'op_name="([^"]*)"', line["rest"])
            dtype = dtypes.get(line["first"], "")
            products.append((_DTYPES.get(dtype, dtype), path[1] if path else ""))
    return products


def count_collectives(
    text: str, sizes: Mapping[str, int]
) -> Counter[tuple[str, tuple[str, ...]]]:
    """Counts collectives by kind and the axes of the mesh along which they are.

    Args:
      sizes: Sizes of the mesh's axes.

    Raises:
      ValueError: A collective names its devices in a form that is not known here.
    """
    counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for line in text.splitlines():
        found = _INSTRUCTION.match(line)
        kind = found["op"].removesuffix("-start") if found else ""
        if found and kind in COLLECTIVES:
            groups = _parse_groups(found["rest"], math.prod(sizes.values()))
            apart = [np.unravel_index(group, tuple(sizes.values())) for group in groups]
            counts[kind, tuple(
                axis
                for index, axis in enumerate(sizes)
                if any(len({*places[index].tolist()}) > 1 for places in apart)
            )] += 1  # fmt: skip
    return counts


def _parse_groups(rest: str, count: int) -> list[np.ndarray]:
    """Returns devices that exchange with each other, by their positions in the mesh.

    They are one group, which the others are like, or all pairs of a permutation.
    """
    if pairs := re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)+)\}", rest):
        return [_numbers(pair) for pair in re.findall(r"\{([\d,]+)\}", pairs[1])]
    if found := re.search(r"replica_groups=\{\{([\d,]+)\}", rest):
        return [_numbers(found[1])]
    if "replica_groups={}" in rest:
        return [np.arange(count)]
    if found := re.search(
        r"replica_groups=\[(\d+,\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", rest
    ):
        return [_places(found[2], found[3]).reshape(_numbers(found[1]))[0]]
    if found := re.search(
        r"replica_groups=mesh\[(?P<sizes>.*?)\]"
        r"(?:, device_ids=\(\[(?P<shape>[\d,]+)\](?:T\((?P<order>[\d,]+)\))?\))?"
        r" \{(?P<named>[^}:]*)\}",
        rest,
    ):
        every = {k: int(n) for k, n in re.findall(r"'(\w+)'=(\d+)", found["sizes"])}
        named = re.findall(r"'(\w+)'", found["named"])
        if {*named} <= {*every}:
            shape = found["shape"] or str(math.prod(every.values()))
            places = _places(shape, found["order"]).reshape(list(every.values()))
            index = tuple(slice(None) if axis in named else 0 for axis in every)
            return [places[index].ravel()]
    raise ValueError(f"no device groups in a known form: {rest[:300]}")


def _places(shape: str, order: str | None) -> np.ndarray:
    """Numbers from 0 in a shape whose axes are then put in an order."""
    sizes = _numbers(shape)
    places = np.arange(math.prod(sizes)).reshape(sizes)
    return places.transpose(_numbers(order)) if order else places


def _numbers(text: str) -> np.ndarray:
    return np.array(text.split(","), int)
