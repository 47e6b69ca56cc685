"""Types that several packages use."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Array, Float

Params = Any  # a tree of arrays
DeviceBatch = Mapping[str, Array]  # columns by name, each [batch, ...]
Scalars = dict[str, Float[Array, ""]]  # named numbers of a batch, such as its losses
