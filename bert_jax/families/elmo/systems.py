"""Systems that read ELMo's vectors.

One is that of GLUE's baselines (Wang et al. 2018, section 5, and
nyu-mll/GLUE-baselines, src/models.py), the other a fine-tuned language model.

A row is flat, `<S> a </S>` or `<S> a </S> <S> b </S>`, and each text is read by itself:
every LSTM begins again where a text does. All is float32.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.families.elmo.config import ElmoConfig
from bert_jax.families.elmo.model import Elmo, scalar_mix
from bert_jax.models.layers import dropout
from bert_jax.models.lstm import BiLstm
from bert_jax.types import DropoutKey

# The `input_ids` of everything that is not a word.
PADDING, BEGIN, END = 0, 1, 2
ATTENTION, FINETUNED = "attention", "finetuned"
SYSTEMS = (ATTENTION, FINETUNED)


@dataclasses.dataclass(frozen=True)
class System:
    """The sizes above ELMo, as in the fields of `config.task` with the same names."""

    name: str = ATTENTION  # one of SYSTEMS
    pairs: bool = False  # rows have two texts, which read each other
    lstm_size: int = 1500  # per direction of the BiLSTMs
    lstm_layers: int = 2  # in the first BiLSTM
    lstm_dropout: float = 0.0  # between its layers
    elmo_dropout: float = 0.5  # rate on the mix
    dropout: float = 0.2  # rate on each BiLSTM's input and output
    classifier_size: int = 512  # size of the hidden layer. 0 means none


class Marks(NamedTuple):
    """Masks of a batch: its words, second texts, and starts of texts."""

    words: Bool[Array, "batch words"]  # False for <S>, </S> and padding
    second: Bool[Array, "batch words"]  # True for the second text
    # Where each direction begins again: a text's <S>, and its </S>.
    fresh: Bool[Array, "2 batch words"]

    @classmethod
    def of(
        cls,
        input_ids: Int[Array, "batch words"],
        input_mask: Int[Array, "batch words"],
        segment_ids: Int[Array, "batch words"],
    ) -> "Marks":
        """Makes the marks of rows from `finetuning.ElmoFinetuning`."""
        fresh = jnp.stack([input_ids == BEGIN, input_ids == END])
        return cls((input_mask > 0) & ~fresh.any(0), segment_ids > 0, fresh)

    def texts(self) -> Bool[Array, "2 batch words"]:
        """Returns the words of each of the two texts."""
        return jnp.stack([self.words & ~self.second, self.words & self.second])


# A head: HEAD(system, labels) takes the output of `Reader` (or ELMo's layers,
# fine-tuned), the marks and the dropout key, and returns outputs by name.
Head = Callable[..., nn.Module]


class ElmoSystem(nn.Module):
    """ELMo under `elmo`, its `mix`, the `reader`, and a head under its own name."""

    config: ElmoConfig
    system: System
    head: Head
    head_name: str
    labels: int
    reading: Head | None = None  # replaces `Reader`: READING(system)

    @nn.compact
    def __call__(
        self,
        characters: Int[Array, "batch words characters"],
        input_ids: Int[Array, "batch words"],
        input_mask: Int[Array, "batch words"],
        segment_ids: Int[Array, "batch words"],
        key: DropoutKey = None,
    ) -> dict[str, Array]:
        """Returns the head's outputs.

        Args:
          characters: Characters of each word, and 0 for padding.
          input_ids: PADDING, BEGIN, END, and any others for words.
          input_mask: 1 for a word or mark, 0 for padding at the rows' ends.
          segment_ids: 0 for the first text, 1 for the second.
          key: Dropout key. None means evaluation.
        """
        keys = (None,) * 4 if key is None else tuple(jax.random.split(key, 4))
        system, marks = self.system, Marks.of(input_ids, input_mask, segment_ids)
        head = self.head(system, self.labels, name=self.head_name)
        elmo = Elmo(self.config, name="elmo")
        if system.name == FINETUNED:
            layers, _ = elmo.layers(characters, fresh=marks.fresh, key=keys[0])
            return head(layers[:, -1], marks, keys[3])
        layers, _ = elmo.layers(characters, fresh=marks.fresh)
        x = Mix(name="mix")(layers, marks.words)
        x = dropout(x, system.elmo_dropout, keys[1])
        x = (self.reading or Reader)(system, name="reader")(x, marks, keys[2])
        return head(x, marks, keys[3])


class Mix(nn.Module):
    """ELMo's weighted sum of layers, which begins as their mean."""

    @nn.compact
    def __call__(
        self,
        layers: Float[Array, "batch layers words size"],
        mask: Bool[Array, "batch words"],
    ) -> Float[Array, "batch words size"]:
        """Returns gamma times the sum of softmax(`weights`) times each layer (equation
        1)."""
        weights = _value(self, "weights", nn.initializers.zeros_init(), layers.shape[1])
        gamma = _value(self, "gamma", nn.initializers.ones_init())
        return scalar_mix(layers, mask, weights, gamma)


class Reader(nn.Module):
    """A BiLSTM and, for pairs, attention to the other text and a second BiLSTM.

    Where dropout is: src/models.py, HeadlessSentEncoder and HeadlessPairAttnEncoder.
    """

    system: System

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch words inputs"], marks: Marks, key: DropoutKey
    ) -> Float[Array, "batch words outputs"]:
        """Returns each word's vector, both directions side by side, or 0 without a
        word.

        Args:
          x: Words' vectors, from <S> to the last </S>, which are not read.
          key: Dropout key. None means evaluation.
        """
        rate = self.system.dropout
        keys = (None,) * 3 if key is None else tuple(jax.random.split(key, 3))
        mask = marks.words.astype(jnp.int32)
        size, layers = self.system.lstm_size, self.system.lstm_layers
        first = BiLstm(size, layers, self.system.lstm_dropout, name="bilstm")
        y = first(dropout(x, rate, keys[0]), mask, keys[0], marks.fresh)
        if self.system.pairs:
            y = jnp.concatenate([y, attended(y, marks)], axis=-1)
            second = BiLstm(size, name="modeling")
            y = second(dropout(y, rate, keys[1]), mask, None, marks.fresh)
        return dropout(y, rate, keys[2])


def attended(
    x: Float[Array, "batch words size"], marks: Marks
) -> Float[Array, "batch words size"]:
    """Returns for each word the mean of the other text's vectors.

    The weights are the softmax of their products with the word's own vector. The mean
    is 0 where the other text has no words.
    """
    other = marks.second[:, :, None] != marks.second[:, None, :]
    allowed = other & marks.words[:, None, :]
    scores = jnp.einsum("bis,bjs->bij", x, x)
    scores = jnp.where(allowed, scores, -jnp.inf)
    # Without a word to look at, all would be -inf. The fractions are then 0.
    largest = jnp.max(scores, axis=-1, keepdims=True)
    largest = jax.lax.stop_gradient(jnp.where(jnp.isfinite(largest), largest, 0.0))
    shares = jnp.where(allowed, jnp.exp(jnp.where(allowed, scores - largest, 0.0)), 0.0)
    total = jnp.sum(shares, axis=-1, keepdims=True)
    return jnp.einsum("bij,bjs->bis", shares / jnp.maximum(total, 1e-30), x)


class Classifier(nn.Module):
    """The largest of each number over a text's words, and a layer of tanh.

    Fine-tuned: the last word's vector, the largest and the mean (Howard and Ruder
    2018, section 3.3), and a linear layer.
    """

    system: System
    labels: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch words size"], marks: Marks, key: DropoutKey
    ) -> dict[str, Float[Array, "batch labels"]]:
        """Returns `logits`, for pairs from [u; v; |u - v|; u * v].

        Args:
          key: Dropout key. None means evaluation.
        """
        system = self.system
        pool = joined_pool if system.name == FINETUNED else max_pool
        y = pool(x, marks.words)
        if system.pairs:
            u, v = (pool(x, mask) for mask in marks.texts())
            y = jnp.concatenate([u, v, jnp.abs(u - v), u * v], axis=-1)
        if system.name == FINETUNED:
            y = dropout(y, system.dropout, key)
        elif system.classifier_size:
            y = jnp.tanh(Linear(system.classifier_size, name="hidden")(y))
        return {"logits": Linear(self.labels, name="output")(y)}


def max_pool(
    x: Float[Array, "batch words size"], mask: Bool[Array, "batch words"]
) -> Float[Array, "batch size"]:
    """Returns the largest of each number over words, or 0 without a word."""
    largest = jnp.max(jnp.where(mask[..., None], x, -jnp.inf), axis=1)
    return jnp.where(mask.any(1, keepdims=True), largest, 0.0)


def joined_pool(
    x: Float[Array, "batch words size"], mask: Bool[Array, "batch words"]
) -> Float[Array, "batch pooled"]:
    """Returns [last; largest; mean] over words.

    Each half of `x` is a direction: the last word that it read is the text's last one,
    or its first.
    """
    count = jnp.maximum(mask.sum(1, keepdims=True), 1)
    mean = jnp.sum(jnp.where(mask[..., None], x, 0.0), axis=1) / count
    ends = [mask.shape[1] - 1 - jnp.argmax(mask[:, ::-1], axis=1), jnp.argmax(mask, 1)]
    halves = jnp.split(x, 2, axis=-1)
    last = [
        jnp.take_along_axis(half, end[:, None, None], axis=1)[:, 0]
        for half, end in zip(halves, ends, strict=True)
    ]
    last = [jnp.where(mask.any(1, keepdims=True), vectors, 0.0) for vectors in last]
    return jnp.concatenate([*last, max_pool(x, mask), mean], axis=-1)


class Linear(nn.Module):
    """A linear layer whose values begin uniform in +-1/sqrt(inputs), as torch's."""

    size: int

    @nn.compact
    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch size"]:
        limit = x.shape[-1] ** -0.5

        def init(key: Key[Array, ""], shape: tuple[int, ...]) -> Array:
            return jax.random.uniform(key, shape, jnp.float32, -limit, limit)

        kernel = _value(self, "kernel", init, x.shape[-1], self.size)
        return x @ kernel + _value(self, "bias", init, self.size)


def _value(
    module: nn.Module, name: str, init: Callable[..., Array], *shape: int
) -> Float[Array, "..."]:
    boxed = nn.with_logical_partitioning(init, (None,) * len(shape))
    return jnp.asarray(module.param(name, boxed, shape))


def init_system(model: ElmoSystem, key: Key[Array, ""]) -> dict:
    """Draws initial parameters, each in a box with its logical axis names."""
    ids = jnp.zeros((1, 1), jnp.int32)
    characters = jnp.zeros((1, 1, model.config.max_characters), jnp.int32)
    return model.init(key, characters, ids, ids, ids)["params"]


def system_flops(config: ElmoConfig, system: System, words: int) -> int:
    """Returns FLOPs of training on words, above ELMo: the BiLSTMs' products, 3 x
    forward."""
    if system.name == FINETUNED:
        return 0
    size, inputs, total = system.lstm_size, 2 * config.hidden_size, 0
    for layer in range(system.lstm_layers):
        total += 2 * 4 * size * ((2 * size if layer else inputs) + size)
    if system.pairs:
        total += 2 * 4 * size * (4 * size + size)
    return 3 * 2 * words * total
