"""A conditional random field over a chain of tags (Lafferty et al. 2001), in float32.

The score of a sentence's tags is the sum of each tag's own score, of each transition's
from a tag to the next, and of the first and the last tag's. Its probability is the
score's share among all sequences of tags. As in AllenNLP
(modules/conditional_random_field) and its crf_tagger.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

_FORBIDDEN = -10_000.0

# Which tag may follow which (AllenNLP, conditional_random_field.allowed_transitions).
# `BIO` is IOB2: B begins every entity. In `IOB1` B begins one only after another of its
# type. `BIOES` has letters for an entity's last and its only word too. L and U are
# other names for E and S (BILOU, AllenNLP's BIOUL).
SCHEMES = ("BIO", "IOB1", "BIOES", "none")
_SAME = {"L": "E", "U": "S"}


class Transitions(NamedTuple):
    """The learned parameters of a CRF, or which transitions may be guessed."""

    between: Shaped[Array, "from_tag to_tag"]  # from each tag to the next
    first: Shaped[Array, "tag"]  # to a sentence's first tag
    last: Shaped[Array, "tag"]  # from its last tag

    def penalize_forbidden(self, allowed: "Transitions") -> "Transitions":
        """Returns these, and 10,000 less for each transition that is not allowed.

        Args:
          allowed: True for each that is. See `allowed_transitions`.
        """
        both = zip(self, allowed, strict=True)
        return Transitions(*(x + jnp.where(a, 0.0, _FORBIDDEN) for x, a in both))


def read_transitions(outputs: Mapping[str, Array]) -> Transitions:
    """Returns the transitions among a model's outputs."""
    return Transitions(*(outputs[name] for name in Transitions._fields))


class Crf(nn.Module):
    """The parameters, which begin as AllenNLP's do, or with `scale` at 0.

    Attributes:
      tags: Number of tags.
      scale: Factor of the parameters. Adam moves each by about the learning rate, so
        with BERT's small ones a transition would not be learned without it.
    """

    tags: int
    scale: float = 1.0

    @nn.compact
    def __call__(self) -> Transitions:
        drawn = (nn.initializers.xavier_normal(), nn.initializers.normal(1.0))
        matrix, vector = drawn if self.scale == 1.0 else (nn.initializers.zeros,) * 2
        return Transitions(
            self._value("between", matrix, 2),
            self._value("first", vector, 1),
            self._value("last", vector, 1),
        )

    def _value(
        self, name: str, init: nn.initializers.Initializer, axes: int
    ) -> Float[Array, "..."]:
        boxed = nn.with_logical_partitioning(init, (None,) * axes)
        return self.scale * jnp.asarray(self.param(name, boxed, (self.tags,) * axes))


def log_likelihood(
    scores: Float[Array, "batch words tags"],
    tags: Int[Array, "batch words"],
    mask: Int[Array, "batch words"],
    transitions: Transitions,
) -> Float[Array, "batch"]:
    """Returns the log of the probability of each sentence's tags, in nats.

    A sentence without a word has 0.

    Args:
      tags: Tag of each word, from 0. It may be anything where `mask` is 0.
      mask: 1 for a word of the sentence. A word with 0 is left out, wherever it is: the
        words before and after it are neighbors.
    """
    between, first, last = transitions
    batch = scores.shape[0]

    def step(state: tuple, word_inputs: tuple) -> tuple:
        forward, path, before, begun = state
        word_scores, tag, is_word = word_inputs
        total = jax.nn.logsumexp(forward[:, :, None] + between, axis=1)
        total = word_scores + jnp.where(begun[:, None], total, first)
        gained = jnp.where(begun, between[before, tag], first[tag])
        gained += jnp.take_along_axis(word_scores, tag[:, None], axis=1)[:, 0]
        after = (
            jnp.where(is_word[:, None], total, forward),
            path + jnp.where(is_word, gained, 0.0),
            jnp.where(is_word, tag, before),
            begun | is_word,
        )
        return after, None

    none = jnp.zeros(batch, jnp.int32)
    state = (jnp.zeros_like(scores[:, 0]), jnp.zeros(batch), none, none > 0)
    state, _ = jax.lax.scan(step, state, _by_word(scores, jnp.maximum(tags, 0), mask))
    forward, path, before, begun = state
    whole = jax.nn.logsumexp(forward + last, axis=1)
    return jnp.where(begun, path + last[before] - whole, 0.0)


def marginals(
    scores: Float[Array, "batch words tags"],
    mask: Int[Array, "batch words"],
    transitions: Transitions,
) -> Float[Array, "batch words tags"]:
    """Returns the probability of each word's tags, 0 where `mask` is 0.

    It is the derivative of the logarithm of the sum over all sequences of tags.
    """
    none = jnp.zeros(mask.shape, jnp.int32)

    def total(scores: Array) -> Array:
        return jnp.sum(log_likelihood(scores, none, mask, transitions))

    of_none = jax.nn.one_hot(none, scores.shape[-1]) * (mask > 0)[..., None]
    return of_none - jax.grad(total)(scores)


def viterbi(
    scores: Float[Array, "batch words tags"],
    mask: Int[Array, "batch words"],
    transitions: Transitions,
) -> Int[Array, "batch words"]:
    """Returns the most probable tags of each sentence, with 0 where `mask` is 0."""
    between, first, last = transitions
    batch, _, size = scores.shape
    same = jnp.broadcast_to(jnp.arange(size), (batch, size))

    def step(state: tuple, word_inputs: tuple) -> tuple:
        best, begun = state
        word_scores, is_word = word_inputs
        paths = best[:, :, None] + between
        goes_on = (is_word & begun)[:, None]
        came_from = jnp.where(goes_on, jnp.argmax(paths, axis=1), same)
        reached = word_scores + jnp.where(goes_on, jnp.max(paths, axis=1), first)
        return (jnp.where(is_word[:, None], reached, best), begun | is_word), came_from

    def back(tag: Array, came_from: Array) -> tuple[Array, Array]:
        return jnp.take_along_axis(came_from, tag[:, None], axis=1)[:, 0], tag

    came_from: Array
    state = (jnp.zeros_like(scores[:, 0]), jnp.zeros(batch, bool))
    (best, _), came_from = jax.lax.scan(step, state, _by_word(scores, mask))
    tag = jnp.argmax(best + last, axis=1)
    _, tags = jax.lax.scan(back, tag, came_from, reverse=True)
    return jnp.where(mask > 0, tags.T, 0)


def _by_word(scores: Array, *columns: Array) -> tuple[Array, ...]:
    """Returns the arrays with words first, and the last one, a mask, as True and
    False."""
    *others, mask = (column.T for column in columns)
    return (scores.swapaxes(0, 1), *others, mask > 0)


def detect_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """Returns the scheme of SCHEMES that all sentences keep to, the first such one."""
    kept = list(SCHEMES)
    for tags in sentences:
        kept = [scheme for scheme in kept if follows_scheme(scheme, tags)]
    return kept[0]


def follows_scheme(scheme: str, tags: Sequence[str]) -> bool:
    """Returns whether a sentence's tags keep to a scheme of SCHEMES."""
    pairs = zip([None, *tags], [*tags, None], strict=True)
    return all(_may_follow(scheme, *pair) for pair in pairs)


def allowed_transitions(labels: Sequence[str], scheme: str) -> Transitions:
    """Returns the transitions that a scheme of SCHEMES allows.

    Args:
      labels: Tags, in the model's order.
    """

    def row(before: str | None) -> list[bool]:
        return [_may_follow(scheme, before, label) for label in labels]

    between = np.array([row(label) for label in labels])
    last = np.array([_may_follow(scheme, label, None) for label in labels])
    return Transitions(jnp.asarray(between), jnp.asarray(row(None)), jnp.asarray(last))


def _may_follow(scheme: str, before: str | None, after: str | None) -> bool:
    """Whether two tags may be neighbors.

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
    """Returns a tag's letter and type. None counts as O."""
    letter, _, kind = (tag or "O").partition("-")
    return _SAME.get(letter, letter), kind
