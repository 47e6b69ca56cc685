"""Types that the rooms share."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Array, Float

Params = Any  # a tree of arrays
Batch = Mapping[str, Array]  # a column each, [batch, ...]
# The named losses of a batch: each one's sum over the batch, and its weight in it.
Sums = dict[str, tuple[Float[Array, ""], Float[Array, ""]]]
