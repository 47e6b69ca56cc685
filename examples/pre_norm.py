"""A layer: LayerNorm before attention and feed-forward (Xiong et al. 2020,
arXiv:2002.04745), and once after the last layer.

    python -m bert_jax.main --config=examples/pre_norm.py

The embeddings keep BERT's LayerNorm.
"""

import flax.linen as nn
from jaxtyping import Array, Float, Int, Key
from ml_collections import ConfigDict

from bert_jax.models.attention import AttentionMask, self_attention
from bert_jax.models.encoder import Layer
from bert_jax.models.layers import (
    ACTIVATION_FUNCTIONS,
    Dense,
    constrain_rows,
    dropout,
    layer_keys,
    layer_norm,
)
from bert_jax.registry import LAYERS

extends = "tiny"


class PreNorm(Layer):
    """An encoder layer with the parameters of `EncoderLayer`."""

    final_norm = staticmethod(layer_norm)  # applied to the last layer's output

    @nn.compact
    def __call__(
        self,
        hidden: Float[Array, "batch length hidden"],
        index: int | Int[Array, ""],
        mask: AttentionMask,
        key: Key[Array, ""] | None,
    ) -> tuple[
        Float[Array, "batch length hidden"], Float[Array, "batch length hidden"]
    ]:
        config, rate = self.config, self.config.hidden_dropout_prob
        keys = layer_keys(key, index, 3)

        normed = layer_norm(config, name="attention_layer_norm")(hidden)
        attended = self_attention(config, name="attention")(normed, mask, keys[0])
        hidden = hidden + dropout(attended, rate, keys[1])

        normed = layer_norm(config, name="layer_norm")(hidden)
        size = (config.intermediate_size,)
        inner = Dense(config, size, ("embed", "mlp"), name="intermediate")(normed)
        inner = ACTIVATION_FUNCTIONS[config.hidden_act](inner)
        output = Dense(config, (config.hidden_size,), ("mlp", "embed"), name="output")
        hidden = constrain_rows(hidden + dropout(output(inner), rate, keys[2]))
        return hidden, hidden


LAYERS["pre_norm"] = PreNorm


def get_config(config: ConfigDict) -> ConfigDict:
    config.model.layer = "pre_norm"
    return config
