"""One field of a config: its default, its allowed values, and when it may change."""

import dataclasses
import difflib
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeAlias

from bert_jax.errors import UserError
from bert_jax.registry import Registry

INT32 = 2**31 - 1  # steps, seeds and ids have 32 bits in JAX
_FLOAT32 = 3.4e38
COUNT = "[1, inf)"
SIZE = "[1, 16777216]"  # a model's dimension: the product of two cannot overflow
LENGTH = "[5, 16777216]"
SHARE = "[0, 1]"
Allowed: TypeAlias = (
    str | tuple[str, ...] | Registry | Callable[[Any], str | None] | None
)


@dataclasses.dataclass(frozen=True)
class Field:
    """A field.

    Attributes:
      default: The default, which also decides the field's type.
      allowed: An interval such as "[0, 1)", the texts to choose from, a registry of
        them, or a function that returns the fault of a value, or None if it has none.
        None means any text, and any number that is not negative.
      fixed_by: Owner of the value, which a later command cannot change.
        none: It may differ each time. No number of a run or a model depends on it.
        training: A resumed run keeps it. Inference may have another one, and reports
          it.
        run: Inference keeps it too.
        weights: As run, and the weights of `init_from` decide it.
        weights_by_default: These decide it, unless it is set to another value than the
          default.
      doc: The purpose, with its unit and source, for --help and docs/config.md.
      items: Type of a tuple's items.
      path: Whether the value names a file or a folder.
      machine: Whether the value describes the machine. Neither this nor a path is taken
        from the config that is recorded next to weights.
    """

    default: Any
    allowed: Allowed = None
    _: dataclasses.KW_ONLY
    fixed_by: Literal["none", "training", "run", "weights", "weights_by_default"] = (
        "run"
    )
    doc: str = ""
    items: type = str
    path: bool = False
    machine: bool = False

    @property
    def from_weights(self) -> bool:
        """Whether the weights of `init_from` decide the value."""
        return self.fixed_by in ("weights", "weights_by_default")

    @property
    def may_differ(self) -> bool:
        """Whether a run and inference from it may have different values."""
        return self.fixed_by in ("none", "training")

    def fault(self, value: Any) -> str | None:
        """Returns the fault of a value, or None if the field may have it."""
        kind = type(self.default)
        if not _has_type(value, kind):
            return f"must be of type {kind.__name__}"
        if callable(self.allowed) and (fault := self.allowed(value)):
            return fault
        if kind is not tuple:
            return self._fault(value, "[0, inf)")
        for item in value:
            if not _has_type(item, self.items):
                example = "('a', 'b')" if self.items is str else "(1, 2)"
                return (
                    f"has {item!r}: all items must be of type {self.items.__name__}, "
                    f'such as "{example}"'
                )
            if fault := self._fault(item, "(-inf, inf)"):
                it = "it " if fault.startswith("must") else ""
                return f"has {item!r}: {it}{fault}"
        return None

    def _fault(self, value: Any, interval: str) -> str | None:
        if isinstance(value, bool):
            return None
        if isinstance(value, int | float):
            interval = self.allowed if isinstance(self.allowed, str) else interval
            low, high = map(float, interval[1:-1].split(","))
            maximum = INT32 if isinstance(value, int) and math.isinf(high) else high
            if not abs(value) <= max(_FLOAT32, INT32):
                return "must be a finite 32-bit number"
            above = value >= low if interval[0] == "[" else value > low
            if above and (value < high if interval[-1] == ")" else value <= high):
                return None if value <= maximum else f"must be at most {maximum}"
            return f"must be {interval_words(interval)}"
        if "\0" in value:
            return "must hold no NUL character"
        match self.allowed:
            case Registry():
                return self.allowed.error_message(value)
            case tuple() if value not in self.allowed:
                empty = ", or leave it empty" if "" in self.allowed else ""
                named = ", ".join(filter(None, self.allowed))
                return f"choose one of {named}{empty}"
        return None


PLAIN = Field(None)  # a field of a custom task without a definition


def empty_error(value: Any) -> str | None:
    """Returns the fault of an empty value, or None for others."""
    return None if value else "must not be empty"


def duplicate_error(value: Any) -> str | None:
    """Returns the fault of a tuple that has an item twice, or None for others."""
    return "names one twice" if len({*value}) < len(value) else None


def require_value(known: Mapping[str, Field], name: str, value: Any) -> None:
    """Raises UserError if a field that is `known` may not have this value."""
    if name in known and (fault := known[name].fault(value)):
        shown = repr(value) if isinstance(value, str) else str(value)
        raise UserError(f"config.{name}={shown[:200]}: {fault}")


def _has_type(value: Any, kind: type) -> bool:
    return type(value) is kind or (kind is float and type(value) is int)


def interval_words(interval: str) -> str:
    """Returns an interval in words, such as "at least 1"."""
    low, high = (end.strip() for end in interval[1:-1].split(","))
    if high != "inf":
        return f"in {interval}"
    return f"{'at least' if interval[0] == '[' else 'more than'} {low}"


def value_words(field: Field) -> str:
    """Returns the type and the allowed values of a field, in words."""
    is_tuple, allowed = isinstance(field.default, tuple), field.allowed
    kind = field.items if is_tuple else type(field.default)
    names = {bool: "True or False", int: "integer", float: "number", str: "text"}
    words = f"tuple of {names[kind]}s" if is_tuple else names[kind]
    if isinstance(allowed, tuple):
        listed = ", ".join(filter(None, allowed))
        return f"{words} from {listed}" if is_tuple else listed
    if allowed is None and kind in (int, float):
        allowed = "[0, inf)"
    return f"{words} {interval_words(allowed)}" if isinstance(allowed, str) else words


def did_you_mean(asked: str, names: Collection[str], before: str) -> str:
    """Returns the end of an error about a misspelled name, empty if it is like none.

    It names the most similar one, or else those in which the part after the group is
    similar.

    Args:
      before: Text before each name.
    """
    ends, end = {n: n.rpartition(".")[2] for n in names}, asked.rpartition(".")[2]
    like = difflib.get_close_matches(end, {*ends.values()}, 1, 0.65)
    begun = [name for name in names if ends[name].startswith(end)]
    whole = difflib.get_close_matches(asked, begun or names, 1, 0.8)
    likely = whole or [name for name in names if ends[name] in like][:3]
    return f"; did you mean {' or '.join(before + x for x in likely)}?" * bool(likely)
