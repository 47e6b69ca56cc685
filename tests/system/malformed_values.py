"""Values for a field, by its type: most of them wrong, some only unusual."""

import random
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bert_jax.config import fields

LONG = "x" * 5000
HALF = "\ud800"  # half of a surrogate pair

# Steps are counted up to there: what is more than a day's work is no hang.
_LENGTHS = ("train.num_steps", "train.num_epochs")


class Value(NamedTuple):
    """A value as a program has it, or as text on the command line."""

    given: Any
    refused: bool  # plainly wrong, whatever the field means


_NUMBERS = [
    *(Value(x, True) for x in (float("nan"), float("inf"), float("-inf"))),
    *(Value(x, True) for x in (10**30, -(10**30), 2**63, -(2**63), 2**64)),
    *(Value(x, True) for x in ("", "many", LONG, HALF, None, (), (1,), {}, [2.5])),
    *(Value(x, False) for x in (0, -1, 1, 3, True, False)),
]
_BY_TYPE: dict[type, list[Value]] = {
    int: [
        *_NUMBERS,
        *(Value(x, True) for x in (1.5, "1.5", "0x", "1_", "--1")),
        *(Value(x, False) for x in (2**31, 2**31 - 1, 2**24, 2**32, -2)),
    ],
    float: [
        *(
            Value(v.given, v.refused and v.given not in (2**63, 2**64, 10**30))
            for v in _NUMBERS
        ),
        *(Value(x, False) for x in (1e30, 1e-45, 0.5, -0.5, 2.0, 1e300)),
    ],
    bool: [
        *(Value(x, True) for x in ("", "maybe", 2, -1, 0.5, None, (), LONG, HALF)),
        *(Value(x, True) for x in (10**30, float("nan"))),
        *(Value(x, False) for x in (True, False)),
    ],
    str: [
        *(Value(x, True) for x in (3, 0.5, None, True, (), ("a",), {}, "a\0b")),
        *(Value(x, False) for x in ("", " ", LONG, HALF, "nan", "/", ".", "..", "\n")),
        *(Value(x, False) for x in ("s3://a/b", "gs://", "tfds:", "tfds:no", "~", "*")),
        *(Value(x, False) for x in ("None", "日本", "-1", "x:y", "[", "{0}", "%s")),
    ],
    tuple: [
        *(Value(x, True) for x in (3, 0.5, None, "word", (1,), (None,), ("a", 2))),
        *(
            Value(x, True)
            for x in ((("a",),), (b"a",), ({},), (float("nan"),), ("\0",))
        ),
        *(Value(x, False) for x in ((), ("",), (LONG,), (HALF,), ("a", "a"), ("dev",))),
        *(Value(x, False) for x in (("text:",), ("jsonl:/no",), ("tfds:no",))),
    ],
}
_MAY_BE_NEGATIVE = ("mesh.", "task.token_column", "task.tag_column")


def of(name: str, default: Any) -> list[Value]:
    """Values for a field.

    Args:
      name: with its group, as train.num_steps.
      default: a good value of it.
    """
    found = _BY_TYPE.get(type(default), [])
    if type(default) in (int, float):
        found = [_judged(name, v, type(default)) for v in found]
    if name in _LENGTHS:
        found = [v for v in found if not _is_long(v.given)]
    return found


def _judged(name: str, value: Value, kind: type) -> Value:
    """Nothing in a config but an axis or a column counts from below."""
    given = value.given
    number = type(given) in (int, float)
    if number and given < 0 and not name.startswith(_MAY_BE_NEGATIVE):
        return Value(given, True)
    # A truth is 0 or 1 to Python, and a number to no reader; floats take whole numbers.
    return value if kind is int or not isinstance(given, bool) else Value(given, False)


def _is_long(given: Any) -> bool:
    return type(given) in (int, float) and 100 < given < 2**62


def every_field(config: ConfigDict) -> list[tuple[str, Any]]:
    """Name and value of every field of a config, in the order of their names."""
    return sorted(fields.each(config), key=lambda pair: pair[0])


def on_command_line(value: Any) -> str:
    """The value as `--config.FIELD=` takes it.

    No argument holds a NUL, and half a pair stands for a byte that is not UTF-8.
    """
    text = value if isinstance(value, str) else repr(value)
    return text.replace(HALF, "\udcff").replace("\0", " ")


def means_the_same(value: Any, default: Any) -> bool:
    """Whether a command line has no way to tell this value from a good one.

    `--config.F=3` gives a text field the text "3", and "True" is a truth as well.
    """
    if isinstance(default, str):
        return not isinstance(value, str) or "\0" in value
    return isinstance(default, float) and isinstance(value, bool)


def mistyped(name: str, rng: random.Random) -> str:
    """A name with one mistake: a letter left out, doubled, changed or swapped."""
    at = rng.randrange(len(name) - 1)
    middle = rng.choice(
        ["", name[at] * 2, "q" if name[at] != "q" else "z", name[at : at + 2][::-1]]
    )
    wrong = name[:at] + middle + name[at + (2 if len(middle) == 2 else 1) :]
    return wrong if wrong != name else name + "s"
