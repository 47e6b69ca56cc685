"""What a value of a config field may be: rules that say what is wrong with one."""

import math
from collections.abc import Callable
from typing import Any

Rule = Callable[[Any], str | None]  # describes what is wrong with a value, or None

INT32 = 2**31 - 1  # steps, seeds and ids have 32 bits in JAX
_FLOAT32 = 3.4e38
SIZE = 2**24  # maximum dimension of a model: the product of two cannot overflow


def whole(least: int = 0, most: int = INT32) -> Rule:
    def fault(value: Any) -> str | None:
        if value < least:
            return f"must be at least {least}"
        return f"must be at most {most}" if value > most else None

    return fault


def number(interval: str = "[0, inf)") -> Rule:
    """Finite numbers in an interval, such as "[0, 1)"."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    least = (
        f"must be {'at least' if interval[0] == '[' else 'more than'} {low:g}"
        if math.isinf(high)
        else f"must be in {interval}"
    )

    def fault(value: Any) -> str | None:
        if not abs(value) <= _FLOAT32:
            return "must be a finite 32-bit number"
        above = value >= low if interval[0] == "[" else value > low
        below = value <= high if interval[-1] == "]" else value < high
        return None if above and below else least

    return fault


def one_of(*choices: str) -> Rule:
    """One of `choices`, of which "" is a field left empty."""
    named = ", ".join(filter(None, choices))
    empty = ", or leave it empty" if "" in choices else ""

    def fault(value: Any) -> str | None:
        return None if value in choices else f"choose one of {named}{empty}"

    return fault


def several_of(*choices: str) -> Rule:
    def fault(value: Any) -> str | None:
        if fault := texts(value):
            return fault
        wrong = [one for one in value if one not in choices]
        return f"choose among {', '.join(choices)}" if wrong else None

    return fault


def text(value: Any) -> str | None:
    return "must hold no NUL character" if "\0" in value else None


def filled(value: Any) -> str | None:
    return text(value) if value else "must not be empty"


def texts(value: Any) -> str | None:
    if isinstance(value, str):
        return "must be a tuple of strings, such as ('one',)"
    for one in value:
        if not isinstance(one, str):
            return f"has {one!r}: all items must be strings"
        if fault := text(one):
            return fault
    return None


def distinct(value: Any) -> str | None:
    if fault := texts(value):
        return fault
    return "names one twice" if len(set(value)) < len(value) else None


def sources(value: Any) -> str | None:
    return texts(value) if value else "must name a source, such as ('text:*.txt',)"


def plain(value: Any) -> str | None:
    """Allows what a run's config.json can store."""
    if isinstance(value, list | tuple):
        return next(filter(None, map(plain, value)), None)
    if value is None or isinstance(value, str | int | float):
        return None
    return f"has a {type(value).__name__}, which config.json cannot store"


def weights(value: Any) -> str | None:
    for one in value:
        if isinstance(one, bool) or not isinstance(one, int | float):
            return "must be a tuple of numbers, such as (2.0, 1.0)"
        if not 0 < one <= 1e6:
            return f"has {one}: a weight must be more than 0, and at most 1e6"
    return None


def flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be True or False"


def spike(value: Any) -> str | None:
    if value and not 1 < value <= _FLOAT32:
        return "must be more than 1, or 0 for no spikes"
    return None


def layers(value: Any) -> str | None:
    if not value:
        return "must name at least one layer, such as (-2,)"
    if all(type(layer) is int for layer in value):
        return None
    return "must be a tuple of integers, such as (-1, -2)"
