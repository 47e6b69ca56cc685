"""Heads on ELMo's words: tags by a CRF, and the two ends of an answer."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from bert_jax.types import DropoutKey
from families.elmo.crf import Crf
from families.elmo.systems import Linear, Marks, System, max_pool


class Tagger(nn.Module):
    """A linear layer's score of each tag, and a CRF's transitions (AllenNLP's
    crf_tagger)."""

    system: System
    labels: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch words size"], marks: Marks, key: DropoutKey
    ) -> dict[str, Array]:
        """`logits` [batch, words, labels]; `between`, `first` and `last`, those of
        `crf.Transitions`.

        Args:
          marks, key: not used.
        """
        del marks, key
        transitions = Crf(self.labels, name="crf")()
        logits = Linear(self.labels, name="output")(x)
        return {"logits": logits, **transitions._asdict()}


class Spans(nn.Module):
    """A linear layer's scores of each word of the second text as an answer's first word
    and as its last one. "No answer" is scored at the row's first place, from the
    largest of each number over both texts' words."""

    system: System
    labels: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch words size"], marks: Marks, key: DropoutKey
    ) -> dict[str, Float[Array, "batch words"]]:
        """`start_logits` and `end_logits`; the least number where no answer may be.

        Args:
          key: not used: `x` has had its dropout.
        """
        del key
        x = x.at[:, 0].set(max_pool(x, marks.words))
        legal = marks.texts()[1].at[:, 0].set(True)
        least = jnp.finfo(x.dtype).min
        scores = jnp.where(legal[..., None], Linear(2, name="output")(x), least)
        return {"start_logits": scores[..., 0], "end_logits": scores[..., 1]}
