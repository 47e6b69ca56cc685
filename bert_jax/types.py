"""Types that several packages use."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Array, Float, Key

Params = Any  # a tree of arrays
ParamPath = tuple[str, ...]  # of one of them, such as (bert, pooler, kernel)
Arrays = Mapping[str, Array]  # by name, such as a batch's columns, each [batch, ...]
DropoutKey = Key[Array, ""] | None  # None means no dropout, as in evaluation
Scalars = dict[str, Float[Array, ""]]  # named numbers of a batch, such as its losses
