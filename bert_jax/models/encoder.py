"""Embeddings, the post-LayerNorm encoder and the pooler (modeling.py, BertModel)."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bert_jax.errors import UserError
from bert_jax.models.attention import AttentionMask, self_attention
from bert_jax.models.config import BertConfig
from bert_jax.models.layers import (
    ACTIVATION_FUNCTIONS,
    PRODUCT,
    Dense,
    Embedding,
    constrain_rows,
    dropout,
    gather_positions,
    layer_keys,
    layer_norm,
)
from bert_jax.types import Arrays, DropoutKey, Scalars

# Arrays that a layer keeps for the backward pass, by `remat`. The rest is recomputed.
_KEPT = {
    "full": jax.checkpoint_policies.nothing_saveable,
    # Results of its linear layers, not attention's length x length ones.
    "dots": jax.checkpoint_policies.save_only_these_names(PRODUCT),
}


class Embeddings(nn.Module):
    """Token + position + segment, LayerNorm, dropout.

    Attributes:
      config: The model's sizes.
      has_types: Whether it adds a vector for each segment.
    """

    config: BertConfig
    has_types: ClassVar[bool] = True

    def setup(self) -> None:
        config = self.config
        self.word_embeddings = Embedding(config, config.vocab_size, "vocab")
        if self.has_types:
            types = config.type_vocab_size
            self.token_type_embeddings = Embedding(config, types, "token_type")
        if (added := config.position_encoding.embedding) is not None:
            self.position_embeddings = added(config)
        self.layer_norm = layer_norm(config)

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"],
        key: DropoutKey,
        position_ids: Int[Array, "batch length"] | None = None,
    ) -> Float[Array, "batch length embedding"]:
        total = self.word_embeddings(input_ids)
        if self.has_types:
            total += self.token_type_embeddings.select(segment_ids)
        if self.config.position_encoding.embedding is not None:
            total += self.position_embeddings.embed(input_ids.shape[1], position_ids)
        return dropout(self.layer_norm(total), self.config.hidden_dropout_prob, key)


class Layer(nn.Module):
    """The part of a layer that the encoder reads. `bert_jax.load` looks for its
    `attention`.

    Attributes:
      config: The model's sizes.
      takes_positions: Whether its last argument is `positions`, at which alone it is
        computed.
      final_norm: MODULE(config, name=...) applied to the last layer's output. None
        means no module.
      starts_from: Other layers from whose weights it also starts, with the names that
        they share.
    """

    config: BertConfig
    takes_positions: ClassVar[bool] = False
    final_norm: ClassVar[Callable[..., nn.Module] | None] = None
    starts_from: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def losses(config: BertConfig) -> Mapping[str, float]:
        """Returns the weights of the numbers that it sows into `losses`, by name.

        A number is a mean over the rows that the layer is called with. The sum over all
        layers, times its weight, is trained as NAME_loss.
        """
        return {}

    @staticmethod
    def flops(config: BertConfig, length: int, index: int) -> int:
        """Returns the FLOPs of layer `index` on one row, forward."""
        hidden, inner = config.hidden_size, config.intermediate_size
        projections = 2 * length * (4 * hidden * hidden + 2 * hidden * inner)
        return projections + 2 * 2 * length * length * hidden


def layer_losses(
    config: BertConfig, outputs: Mapping[str, Any], batch: Arrays
) -> Scalars:
    """Returns the losses of a model's layers (`Layer.losses`), as sums over rows.

    Args:
      outputs: Outputs of the model, with `layer_losses` if a layer has sown any.

    Raises:
      UserError: A layer sows others than it names.
    """
    weights = config.layer_class.losses(config)
    sown = outputs.get("layer_losses", {})
    for name in sorted(weights.keys() ^ sown.keys()):
        layer = config.layer_class.__name__
        raise UserError(
            f"config.model.layer: {layer} sows the loss {name}; add its weight to "
            f"{layer}.losses"
            if name in sown
            else f"config.model.layer: {layer}.losses names {name}; sow it with "
            f"self.sow('losses', '{name}', value)"
        )
    rows = len(next(iter(batch.values())))
    return {
        f"{name}_loss": rows * weight * outputs["layer_losses"][name]
        for name, weight in weights.items()
    }


def layer_loss_weights(config: BertConfig, batch: Arrays) -> Scalars:
    """Returns the divisor of each of `layer_losses`: the number of rows."""
    rows = jnp.float32(len(next(iter(batch.values()))))
    return {f"{name}_loss": rows for name in config.layer_class.losses(config)}


class EncoderLayer(Layer):
    """BERT's layer: attention and feed-forward, each followed by dropout, residual and
    LayerNorm.

    Attributes:
      attends: Attention, MODULE(config, adds_bias=..., name=...).
      adds_bias: Whether linear layers add their biases. If not, `add_and_norm` and
        `activate` do.
    """

    attends: ClassVar[Callable[..., nn.Module]] = staticmethod(self_attention)
    takes_positions: ClassVar[bool] = True
    adds_bias: ClassVar[bool] = True

    @nn.compact
    def __call__(
        self,
        hidden: Float[Array, "batch length hidden"],
        index: int | Int[Array, ""],
        mask: AttentionMask,
        key: DropoutKey,
        positions: Int[Array, "batch positions"] | None = None,
    ) -> tuple[Float[Array, "batch queries hidden"], ...]:
        """Returns its output twice: as the scan's carry, and for the scan to stack.

        Args:
          positions: Positions at which the output is computed. None means every
            position. Dropout draws the same numbers either way.
        """
        config, biased = self.config, self.adds_bias
        keys = layer_keys(key, index, 3)

        attention = self.attends(config, adds_bias=biased, name="attention")
        attended = attention(hidden, mask, keys[0], positions)
        # The residual: [batch, queries, hidden]
        hidden = hidden if positions is None else gather_positions(hidden, positions)
        name = "attention_layer_norm"
        hidden = self.add_and_norm(name, attended, hidden, keys[1], positions)

        size, names = (config.intermediate_size,), ("embed", "mlp")
        dense = Dense(config, size, names, adds_bias=biased, name="intermediate")
        size, names = (config.hidden_size,), ("mlp", "embed")
        output = Dense(config, size, names, adds_bias=biased, name="output")
        fed = output(self.activate(dense(hidden)))
        hidden = self.add_and_norm("layer_norm", fed, hidden, keys[2], positions)
        hidden = constrain_rows(hidden)
        return hidden, hidden

    def add_and_norm(
        self,
        name: str,
        x: Any,
        hidden: Float[Array, "batch queries hidden"],
        key: DropoutKey,
        positions: Int[Array, "batch positions"] | None,
    ) -> Float[Array, "batch queries hidden"]:
        dropped = dropout(x, self.config.hidden_dropout_prob, key, positions)
        return layer_norm(self.config, name=name)(hidden + dropped)

    def activate(self, x: Any) -> Float[Array, "batch queries inner"]:
        return ACTIVATION_FUNCTIONS[self.config.hidden_act](x)


class Encoder(nn.Module):
    """The layers, one after another or as one scanned layer.

    Attributes:
      config: The model's sizes.
      shared: Whether every layer has the parameters of the first.
    """

    config: BertConfig
    shared: bool = False

    def setup(self) -> None:
        config = self.config
        layer = config.layer_class
        if config.remat != "none":
            layer = nn.remat(
                layer,
                # Inside a scan, XLA cannot optimize the recomputation away.
                prevent_cse=not config.scan_layers,
                # The layer's number. A scan counts it in the program.
                static_argnums=() if config.scan_layers else (2,),
                policy=_KEPT[config.remat],
            )
        if config.scan_layers:
            scanned = nn.scan(
                layer,
                variable_axes={"params": 0, "intermediates": 0, "losses": 0},
                split_rngs={"params": True},
                in_axes=(0, nn.broadcast, nn.broadcast),
                length=config.num_hidden_layers,
                metadata_params={nn.PARTITION_NAME: "layers"},
            )
            self.layers = scanned(config)
        else:
            for index in range(1 if self.shared else config.num_hidden_layers):
                setattr(self, f"layer_{index}", layer(config))
        if config.layer_class.final_norm is not None:
            self.final_layer_norm = config.layer_class.final_norm(config)

    def __call__(
        self,
        hidden: Float[Array, "batch length hidden"],
        mask: AttentionMask,
        key: DropoutKey,
    ) -> tuple[
        Float[Array, "batch length hidden"], list[Float[Array, "batch length hidden"]]
    ]:
        """Returns the last layer's output, and every layer's in order."""
        count = self.config.num_hidden_layers
        if self.config.scan_layers:
            hidden, outputs = self.layers(hidden, jnp.arange(count), mask, key)
        else:
            outputs = []
            for index in range(count):
                hidden, _ = self._layer(index)(hidden, index, mask, key)
                outputs.append(hidden)
        if self.config.layer_class.final_norm is not None:
            hidden = self.final_layer_norm(hidden)
        # Not the last of the stacked outputs: all of them would then be kept for one.
        return hidden, [*outputs[:-1], hidden]

    def _layer(self, index: int) -> Any:
        return getattr(self, f"layer_{0 if self.shared else index}")

    def recompute_last_layer(
        self,
        states: list[Float[Array, "batch length hidden"]],
        mask: AttentionMask,
        key: DropoutKey,
        positions: Int[Array, "batch positions"],
    ) -> Float[Array, "batch positions hidden"]:
        """Returns the last layer's output at some positions.

        Unlike in the paper's code, which gathers them from the whole output, the last
        layer is computed again at these positions alone, from the output of the layer
        before it. XLA then leaves out the whole output, unless something reads that. A
        layer that cannot (`takes_positions`) is computed once, and gathered from.

        Args:
          states: Outputs of the embeddings, then of each layer.
        """
        layer = self.config.layer_class
        again = layer.takes_positions and not layer.losses(self.config)
        if self.config.scan_layers or not again:
            return gather_positions(states[-1], positions)
        last = self.config.num_hidden_layers - 1
        hidden, _ = self._layer(last)(states[-2], last, mask, key, positions)
        has_norm = self.config.layer_class.final_norm is not None
        return self.final_layer_norm(hidden) if has_norm else hidden


class Packed(NamedTuple):
    """The sequences' positions in rows that hold several
    (`data.packing.pack_pairs`)."""

    sequence_ids: Int[Array, "batch length"]  # 1, 2, ... in a row, 0 for padding
    position_ids: Int[Array, "batch length"]  # from 0 in each sequence
    cls_positions: Int[Array, "batch sequences"]  # 0 where there is no sequence

    @classmethod
    def from_batch(cls, batch: Arrays) -> "Packed | None":
        """Returns these columns of a batch. None means one sequence per row."""
        if "sequence_ids" not in batch:
            return None
        return cls(*(batch[name] for name in cls._fields))


def last_token(input_mask: Int[Array, "batch length"]) -> Int[Array, "batch 1"]:
    """Returns the position of each row's last token. Padding follows the tokens."""
    return jnp.maximum(jnp.sum(input_mask, axis=1, keepdims=True) - 1, 0)


class Encoded(NamedTuple):
    """BERT's outputs for a batch."""

    sequence: Float[Array, "batch length hidden"]  # the last layer's output
    # The output at the requested positions, which may be the only ones computed.
    gathered: Float[Array, "batch positions hidden"]
    # The first token's vector: one per row, unless packed.
    first: Float[Array, "batch *sequences hidden"]
    pooled: Float[Array, "batch *sequences hidden"]  # the pooler's output for it
    hidden_states: list[Float[Array, "batch length hidden"]]  # embeddings, each layer


class Bert(nn.Module):
    """The part that every task shares: 109,482,240 parameters for Base.

    A family overrides the class variables, all attributes but the config.

    Attributes:
      config: The model's sizes.
      embeds: Function of the config that returns the embeddings.
      shares_layers: Whether every layer has the parameters of the first.
      has_pooler: Whether it has a pooler. If not, `pooled` is the first token's vector.
      has_positions: Whether it has the embeddings of positions that `positions` names.
    """

    config: BertConfig
    embeds: ClassVar[Callable[..., nn.Module]] = Embeddings
    shares_layers: ClassVar[bool] = False
    has_pooler: ClassVar[bool] = True
    has_positions: ClassVar[bool] = True

    def setup(self) -> None:
        config = self.config
        self.embeddings = self.embeds(config)
        size, names = (config.hidden_size,), ("embed", "pooled")
        if self.projects:
            self.embedding_projection = Dense(config, size, names)
        self.encoder = Encoder(config, self.shares_layers)
        if self.has_pooler:
            self.pooler = Dense(config, size, names)

    @property
    def projects(self) -> bool:
        """Whether a linear layer follows the embeddings."""
        return self.config.embedding_size != self.config.hidden_size

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        input_mask: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"],
        key: DropoutKey = None,
        packed: Packed | None = None,
        positions: Int[Array, "batch positions"] | None = None,
    ) -> Encoded:
        """Encodes a batch.

        Args:
          input_ids: Token ids, [CLS] first.
          input_mask: 1 for a token, 0 for padding.
          segment_ids: 0 for the first sentence, 1 for the second.
          key: Dropout key. None means evaluation.
          packed: Ids and positions of rows with several sequences, each of which is
            encoded as if alone.
          positions: Positions to return in `Encoded.gathered`. None means no positions.
        """
        keys = (None, None) if key is None else tuple(jax.random.split(key))
        mask, position_ids = self.attention_mask(input_mask, packed), None
        if packed is not None:
            position_ids = packed.position_ids
        embedded = self.embeddings(input_ids, segment_ids, keys[0], position_ids)
        if self.projects:
            embedded = self.embedding_projection(embedded)
        embedded = constrain_rows(embedded)
        sequence, outputs = self.encoder(embedded, mask, keys[1])
        states = [embedded, *outputs]
        summary_positions = self.summary_positions(input_mask, packed)
        requested = (
            summary_positions
            if positions is None
            else jnp.concatenate([summary_positions, positions], 1)
        )
        # [batch, sequences + positions, hidden], with 1 sequence unless packed
        read = self.encoder.recompute_last_layer(states, mask, keys[1], requested)
        first, gathered = jnp.split(read, [summary_positions.shape[1]], axis=1)
        # [batch, hidden], or packed [batch, sequences, hidden]
        first = first[:, 0] if packed is None else first
        return Encoded(sequence, gathered, first, self.pool(first), states)

    def attention_mask(
        self, input_mask: Int[Array, "batch length"], packed: Packed | None
    ) -> AttentionMask:
        """Returns the mask of every layer."""
        if packed is None:
            return AttentionMask.from_input_mask(input_mask)
        ids = packed.sequence_ids
        return AttentionMask(ids, ids, packed.position_ids)

    def summary_positions(
        self, input_mask: Int[Array, "batch length"], packed: Packed | None = None
    ) -> Int[Array, "batch sequences"]:
        """Returns the position of each sequence's vector: its [CLS].

        Left to right, [CLS] attends only to itself, so the last token is taken instead,
        a [SEP]. Packed rows are an exception, because nothing uses it there.
        """
        if packed is not None:
            return packed.cls_positions
        return last_token(input_mask) if self.config.causal else input_mask[:, :1] * 0

    def cls_vector(
        self,
        sequence: Float[Array, "batch length hidden"],
        input_mask: Int[Array, "batch length"],
    ) -> Float[Array, "batch hidden"]:
        """Returns the vector of [CLS] in a transform of the last layer's output."""
        return gather_positions(sequence, self.summary_positions(input_mask))[:, 0]

    def pool(
        self, first: Float[Array, "batch *sequences hidden"]
    ) -> Float[Array, "batch *sequences hidden"]:
        """Applies a linear layer and tanh, if the model has a pooler."""
        return jnp.tanh(self.pooler(first)) if self.has_pooler else first
