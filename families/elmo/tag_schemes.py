"""Which tag may follow which (AllenNLP, conditional_random_field.allowed_transitions).

`BIO` is IOB2: B begins every entity. In `IOB1` B begins one only after another of its
type. `BIOES` has letters for an entity's last and its only word too; L and U are other
names for E and S (BILOU, AllenNLP's BIOUL).
"""

from collections.abc import Iterable, Sequence

import jax.numpy as jnp
import numpy as np

from families.elmo.crf import Allowed

SCHEMES = ("BIO", "IOB1", "BIOES", "none")
_SAME = {"L": "E", "U": "S"}


def found_in(sentences: Iterable[Sequence[str]]) -> str:
    """The scheme of SCHEMES that all sentences keep to; the first such one."""
    kept = list(SCHEMES)
    for tags in sentences:
        pairs = list(zip([None, *tags], [*tags, None], strict=True))
        kept = [s for s in kept if all(_may_follow(s, *pair) for pair in pairs)]
    return kept[0]


def allowed(labels: Sequence[str], scheme: str) -> Allowed:
    """The transitions that a scheme of SCHEMES allows.

    Args:
      labels: the tags, in the model's order.
    """

    def row(before: str | None) -> list[bool]:
        return [_may_follow(scheme, before, label) for label in labels]

    between = np.array([row(label) for label in labels])
    last = np.array([_may_follow(scheme, label, None) for label in labels])
    return Allowed(jnp.asarray(between), jnp.asarray(row(None)), jnp.asarray(last))


def _may_follow(scheme: str, before: str | None, after: str | None) -> bool:
    """Whether two tags may be neighbours.

    Args:
      before: None: `after` is the first tag.
      after: None: `before` is the last one.
    """
    (one, kind), (two, other) = (_parts(tag) for tag in (before, after))
    goes_on = one in ("B", "I") and kind == other
    match scheme:
        case "BIO":
            return two in ("O", "B") or (two == "I" and goes_on)
        case "IOB1":
            return two in ("O", "I") or (two == "B" and goes_on)
        case "BIOES":
            if one in ("B", "I"):
                return two in ("I", "E") and goes_on
            return two in ("O", "B", "S")
        case _:
            return True


def _parts(tag: str | None) -> tuple[str, str]:
    """A tag's letter and type; nothing is like O."""
    letter, _, kind = (tag or "O").partition("-")
    return _SAME.get(letter, letter), kind
