"""The sizes of models, and table 6's six shapes at each."""

from configs.base import SIZES as BASE_SIZES

# Layers, hidden size and heads; tiny is configs/tiny.py:recipe=plain.
SIZES = {
    "tiny": (2, 128, 4),
    **{name: (*shape, shape[1] // 64) for name, shape in BASE_SIZES.items()},
}


def shapes(size: str) -> tuple[tuple[int, int, int], ...]:
    """Table 6's six models in the proportions of a size: Base gives the paper's own.

    Each has the heads' width of its size. Where a quarter of the layers and half of
    them are the same number, the first model has half of the width.
    """
    layers, hidden, heads = SIZES["base" if size == "large" else size]
    quarter, half = max(1, layers // 4), max(1, layers // 2)
    first = (quarter, hidden, heads)
    if quarter == half:
        first = (quarter, hidden // 2, heads // 2)
    more = heads * 4 // 3
    wide = (hidden // heads * more, more)
    return (
        *(first, (half, hidden, heads // 4), (half, hidden, heads)),
        *((layers, hidden, heads), (layers, *wide), (2 * layers, *wide)),
    )
