"""The pre-training heads, BERT with both of them, and initial parameters."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import Bert, Packed
from bert_jax.models.layers import (
    ACTIVATION_FUNCTIONS,
    Dense,
    dropout,
    layer_norm,
    platform_name,
)
from bert_jax.models.matmul import multiplied_einsum
from bert_jax.models.stacking import stack_layers
from bert_jax.types import DropoutKey

# Matrix units multiply aligned arrays at twice the rate of others.
_ALIGNED = 128


def vocabulary_logits(
    hidden: Float[Array, "... hidden"],
    embedding: Float[Array, "vocab hidden"],
    bias: Float[Array, "vocab"] | None,
    *,
    training: bool,
) -> Float[Array, "... vocab"]:
    """Computes products with the embeddings plus the bias, in float32.

    In training, GPUs and TPUs round them to the dtype of `hidden`: they are the model's
    largest array, and its losses are summed in float32 all the same. On a GPU the
    product has further columns, which nothing reads. On a TPU no axes are joined, which
    would copy the logits to another layout.
    """
    device, dtype, padding = platform_name(), jnp.float32, 0
    if device != "cpu" and training:
        dtype = hidden.dtype
    if device == "gpu" and jax.sharding.get_abstract_mesh().shape.get("tensor", 1) == 1:
        padding = -len(embedding) % _ALIGNED
    # [..., hidden] on a TPU, elsewhere [rows, hidden]
    rows = hidden if device == "tpu" else hidden.reshape(-1, hidden.shape[-1])
    axes = "abc"[: rows.ndim - 1]
    spec = f"{axes}i,oi->{axes}o"
    # [..., vocab + padding]
    logits = multiplied_einsum(spec, rows, _pad_rows(embedding, padding), dtype)
    if bias is not None:
        logits = (logits + _pad_rows(bias, padding)).astype(dtype)
    return logits[..., : len(embedding)].reshape(*hidden.shape[:-1], -1)


def _pad_rows(rows: Float[Array, "rows ..."], count: int) -> Float[Array, "padded ..."]:
    return jnp.pad(rows, ((0, count), *((0, 0),) * (rows.ndim - 1))) if count else rows


class MaskedLmHead(nn.Module):
    """Dense, activation, LayerNorm, then the embedding matrix and its own bias."""

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        hidden: Float[Array, "batch positions inputs"],
        embedding: Float[Array, "vocab embedding"],
        training: bool = False,
    ) -> Float[Array, "batch positions vocab"]:
        config = self.config
        size = (config.embedding_size,)
        transform = Dense(config, size, ("embed", "pooled"), name="dense")
        hidden = ACTIVATION_FUNCTIONS[config.hidden_act](transform(hidden))
        hidden = layer_norm(config, name="layer_norm")(hidden)
        return self.vocabulary_logits(hidden, embedding, training)

    def vocabulary_logits(
        self,
        hidden: Float[Array, "batch positions inputs"],
        embedding: Float[Array, "vocab hidden"],
        training: bool = False,
    ) -> Float[Array, "batch positions vocab"]:
        """Computes `vocabulary_logits` with the head's bias."""
        config = self.config
        bias = self.param(
            "bias",
            nn.with_logical_partitioning(nn.initializers.zeros_init(), ("vocab",)),
            (config.vocab_size,),
        )
        added = jnp.asarray(bias)
        return vocabulary_logits(hidden, embedding, added, training=training)


class HiddenLayer(NamedTuple):
    """A classifier's own hidden layer, on the first token's vector."""

    activation: Callable[[Array], Array]  # on its output
    drops_input: bool  # dropout before the hidden layer too


class Classifier(Dense):
    """A linear layer, with dropout before it, on the output of a hidden layer.

    Attributes:
      hidden: The hidden layer.
      rate: Dropout rate.
    """

    hidden: HiddenLayer = HiddenLayer(jnp.tanh, True)
    rate: float = 0.0

    def setup(self) -> None:
        size = (self.config.hidden_size,)
        self.dense = Dense(self.config, size, ("embed", "pooled"))

    def __call__(
        self, x: Float[Array, "..."], key: DropoutKey = None
    ) -> Float[Array, "..."]:
        keys = (None, None) if key is None else tuple(jax.random.split(key))
        if self.hidden.drops_input:
            x = dropout(x, self.rate, keys[0])
        inner = self.hidden.activation(self.dense(x))
        return super().__call__(dropout(inner, self.rate, keys[1]))


class BertForPreTraining(nn.Module):
    """The trunk with the masked LM and next sentence heads (run_pretraining.py).

    Attributes:
      config: The model's sizes.
      trunk: Function of the config that returns the model without heads.
      lm_head: Function of the config that returns the masked LM head.
      has_nsp_head: Whether it has the next sentence head.
    """

    config: BertConfig
    trunk: Callable[..., nn.Module] = Bert
    lm_head: ClassVar[Callable[..., nn.Module]] = MaskedLmHead
    has_nsp_head: bool = True

    def setup(self) -> None:
        self.bert = self.trunk(self.config)
        self.masked_lm = self.lm_head(self.config)
        if self.has_nsp_head:
            names = ("embed", "labels")
            self.next_sentence = Dense(self.config, (2,), names, logits=True)

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        input_mask: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"],
        masked_lm_positions: Int[Array, "batch predictions"] | None,
        key: DropoutKey = None,
        packed: Packed | None = None,
    ) -> dict[str, Array]:
        """Returns `masked_lm_logits` [batch, predictions, vocab] and
        `next_sentence_logits` [batch, 2] (0 is IsNext, 1 NotNext), float32 but for
        `vocabulary_logits` in training. In packed rows `next_sentence_logits` are
        [batch, sequences, 2]. A model without that head does not return them.

        Without `masked_lm_positions`, for left to right, returns only `lm_logits`
        [batch, length - 1, vocab], at each position but the last.
        """
        positions, training = masked_lm_positions, key is not None
        encoded = self.bert(input_ids, input_mask, segment_ids, key, packed, positions)
        if positions is None:
            return {"lm_logits": self.token_logits(encoded.sequence[:, :-1], training)}
        # The logits are the model's largest array, so only at the masked positions.
        logits = {"masked_lm_logits": self.token_logits(encoded.gathered, training)}
        if self.has_nsp_head:
            logits["next_sentence_logits"] = self.next_sentence(encoded.pooled)
        return logits

    def token_logits(
        self, hidden: Float[Array, "..."], training: bool = False
    ) -> Float[Array, "..."]:
        """Computes the tokens' logits. The matrix is that of the word embeddings."""
        embedding = self.bert.embeddings.word_embeddings.table
        return jnp.asarray(self.masked_lm(hidden, embedding, training))


VECTOR_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "identity": lambda x: x,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": ACTIVATION_FUNCTIONS["gelu"],
}


class VectorLayers(nn.Module):
    """Linear layers after the pooling of text vectors, in float32."""

    config: BertConfig
    layers: tuple[str, ...]  # each SIZE:ACTIVATION

    @nn.compact
    def __call__(self, vectors: Float[Array, "batch inputs"]) -> Float[Array, "..."]:
        for index, layer in enumerate(self.layers):
            size, _, activation = layer.partition(":")
            name, axes = f"linear_{index}", ("embed", "pooled")
            dense = Dense(self.config, (int(size),), axes, logits=True, name=name)
            vectors = VECTOR_ACTIVATIONS[activation](dense(vectors))
        return vectors


def init_model(model: nn.Module, key: Key[Array, ""], *, inputs: int = 3) -> dict:
    """Returns initial parameters of a model with a `config`, boxed with logical axes.

    The same key gives the same values whether the layers are stacked or not.

    Args:
      inputs: Number of arrays (ids, masks, positions) that the model takes.
    """
    config = model.config
    unrolled = dataclasses.replace(config, scan_layers=False, remat="none")
    ids = [jnp.zeros((1, 1), jnp.int32)] * inputs
    params = model.clone(config=unrolled).init(key, *ids)["params"]
    if config.scan_layers:
        params = stack_layers(params, config.num_hidden_layers)
    return params


def count_parameters(params: dict) -> int:
    """Counts the elements in a tree of arrays (or of their shapes)."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
