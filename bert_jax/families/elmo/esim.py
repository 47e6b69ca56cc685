"""ESIM over ELMo: scores an ending by how it goes with its context.

Chen et al. 2017, sections 3.1 to 3.3, as Zellers et al. 2018 have it over ELMo
(rowanz/swagaf, swag_baselines/esim/esim_swag.py). All is float32.
"""

import dataclasses
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bert_jax.families.elmo.config import ElmoConfig
from bert_jax.families.elmo.systems import (
    Marks,
    System,
    attended,
    max_pool,
    system_flops,
)
from bert_jax.models.layers import dropout
from bert_jax.models.lstm import BiLstm
from bert_jax.types import DropoutKey


class Inference(nn.Module):
    """Encoding, attention and composition: two BiLSTMs, and between them each text's
    attention to the other one."""

    system: System

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch words inputs"], marks: Marks, key: DropoutKey
    ) -> Float[Array, "batch words outputs"]:
        """Returns each word's vector, both directions side by side, or 0 without a
        word.

        Args:
          key: Dropout key for both BiLSTMs' inputs. None means evaluation.
        """
        system = self.system
        keys = (None,) * 2 if key is None else tuple(jax.random.split(key))
        mask = marks.words.astype(jnp.int32)
        size, layers = system.lstm_size, system.lstm_layers
        x = text_dropout(x, marks.second, system.dropout, keys[0])
        first = BiLstm(size, layers, system.lstm_dropout, name="bilstm")
        encoded = first(x, mask, keys[0], marks.fresh)
        other = attended(encoded, marks)
        y = jnp.concatenate([encoded, other, encoded - other, encoded * other], axis=-1)
        y = nn.relu(_linear(size, "projection")(y))
        y = text_dropout(y, marks.second, system.dropout, keys[1])
        return BiLstm(size, name="modeling")(y, mask, None, marks.fresh)


class Scorer(nn.Module):
    """The mean and the largest of each number over each text's words, a hidden layer
    of ReLU, and one number."""

    system: System
    labels: int  # numbers per choice, instead of one

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch words size"], marks: Marks, key: DropoutKey
    ) -> dict[str, Float[Array, "batch labels"]]:
        """Returns `logits`.

        Args:
          key: Dropout key for both layers' inputs. None means evaluation.
        """
        system = self.system
        keys = (None,) * 2 if key is None else tuple(jax.random.split(key))
        pooled = [
            pool(x, words) for words in marks.texts() for pool in (mean_pool, max_pool)
        ]
        y = dropout(jnp.concatenate(pooled, axis=-1), system.dropout, keys[0])
        if system.classifier_size:
            y = nn.relu(_linear(system.classifier_size, "hidden")(y))
            y = dropout(y, system.dropout, keys[1])
        return {"logits": _linear(self.labels, "output")(y)}


def text_dropout(
    x: Float[Array, "batch words size"],
    second: Bool[Array, "batch words"],
    rate: float,
    key: DropoutKey,
) -> Float[Array, "batch words size"]:
    """Drops the same numbers in all words of a text (Gal and Ghahramani 2016).

    Args:
      second: Whether a word is of the second text, which drops its own numbers.
    """
    kept = dropout(jnp.ones((len(x), 2, x.shape[-1]), x.dtype), rate, key)
    return x * jnp.where(second[..., None], kept[:, 1:], kept[:, :1])


def mean_pool(
    x: Float[Array, "batch words size"], mask: Bool[Array, "batch words"]
) -> Float[Array, "batch size"]:
    """Returns the mean over words, or 0 without a word."""
    total = jnp.sum(jnp.where(mask[..., None], x, 0.0), axis=1)
    return total / jnp.maximum(mask.sum(1, keepdims=True), 1)


def flops(config: ElmoConfig, system: System, words: int) -> int:
    """Returns FLOPs of training on words, above ELMo: the products with weights of each
    word, 3 x forward."""
    size = system.lstm_size
    first = dataclasses.replace(system, pairs=False)  # without a second BiLSTM
    # The projection, and the second BiLSTM with its inputs and its own outputs.
    others = 8 * size * size + 2 * 4 * size * (size + size)
    return system_flops(config, first, words) + 3 * 2 * words * others


def _linear(size: int, name: str) -> Callable[[Array], Array]:
    """Returns a linear layer that begins as the published one: Glorot's uniform values
    and biases of 0."""
    kernel = nn.with_logical_partitioning(
        nn.initializers.xavier_uniform(), (None, None)
    )
    bias = nn.with_logical_partitioning(nn.initializers.zeros_init(), (None,))
    return nn.Dense(size, kernel_init=kernel, bias_init=bias, name=name)
