"""Reads parameters of `layout` from any source of arrays by name."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from bert_jax.convert import layout
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig

# The files by which a folder of weights is known.
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLAX = "flax_model.msgpack"
PICKLE = "pytorch_model.bin"
GOOGLE_CONFIG = "bert_config.json"


@runtime_checkable
class Source(Protocol):
    """Arrays by name."""

    where: str  # for errors

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    def read(self, name: str) -> layout.Array: ...


class Files(Source, Protocol):
    """The arrays of a folder's files."""

    def replace(self, name: str, other: str) -> None:
        """Renames `other` to `name`, if it exists."""


def as_it_is(array: layout.Array) -> Any:
    """The `place` that keeps NumPy arrays."""
    return array


def build(
    source: Source,
    config: BertConfig,
    expected: Iterable[layout.Parameter],
    dialect: str,
    place: Callable[[layout.Array], Any],
) -> dict[str, Any]:
    """Reads parameters into a tree.

    Args:
      place: called with each array, to move it to a device before the next is read, so
        that few are in memory twice.

    Raises:
      UserError: a parameter is missing, has another shape, or is not finite.
    """
    tree: dict[str, Any] = {}
    for parameter in expected:
        name = parameter.name(dialect)
        actual, shape = source.shapes.get(name), parameter.their_shape(dialect)
        if actual is None:
            raise UserError(
                f"{source.where}: {name} is missing, but the config requires it "
                f"({config.num_hidden_layers} layers, hidden size {config.hidden_size})"
                f"{_prefix_hint(source.shapes, name)}"
            )
        if actual != shape:
            raise UserError(
                f"{source.where}: {name} has the shape {actual}, but the config "
                f"requires {shape}"
            )
        array = source.read(name)
        if not np.isfinite(array).all():
            raise UserError(
                f"{source.where}: {name} has NaN or infinity; the file is damaged"
            )
        put(tree, parameter.path, place(parameter.take(array, dialect)))
    return tree


def _prefix_hint(names: Iterable[str], missing: str) -> str:
    """Names a prefix that all names have and the missing one has not."""
    first, *others = {name.partition(".")[0] for name in names} or {""}
    if others or not first or missing.startswith(f"{first}."):
        return ""
    return f"; all names there begin with {first!r}: take that off"


def check_layers(source: Source, config: BertConfig) -> None:
    """Raises UserError if the config has another number of layers."""
    numbers = (re.search(r"\blayers?[._](\d{1,9})", name) for name in source.shapes)
    count = 1 + max((int(n[1]) for n in numbers if n is not None), default=-1)
    if count != config.num_hidden_layers:
        raise UserError(
            f"{source.where}: has {count} layers, but the config has "
            f"num_hidden_layers={config.num_hidden_layers}"
        )


def put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Sets a leaf of a nested dict."""
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value
