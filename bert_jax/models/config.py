"""The model's hyperparameters, and the FLOPs that follow from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from bert_jax.errors import UserError

# Head sizes of the fused attention, whose blocks are powers of 2.
FUSED_HEAD_DIMS = (16, 32, 64, 128)
# Tokens of the longest row that the TPU's kernel with dropout computes.
LONGEST_WHOLE_ROW = 1024
MASK_VALUE = -1e4  # added to the scores of keys that a query does not see (modeling.py)


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The fields of bert_config.json, those that select how the model is computed, and
    the objects that they name (`family.bert_config` makes it)."""

    # As in bert_config.json.
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    hidden_act: str
    hidden_dropout_prob: float
    attention_probs_dropout_prob: float
    initializer_range: float
    layer_norm_eps: float
    # As in `config.model`, whose comments define them.
    dtype: str
    attention: str
    remat: str
    scan_layers: bool
    epilogue: str = "xla"
    causal: bool = False
    architecture: str = "bert"
    position_initializer: str = "normal"
    layer: str = "post_norm"
    positions: str = "learnt"
    # The family's fields, see `config.fields.family_model_fields`.
    family_fields: tuple[tuple[str, Any], ...] = ()
    own_fields: tuple[tuple[str, Any], ...] = ()  # a config file's, for its layers
    bias: bool = True  # in linear layers and LayerNorms (logits always have one)
    # (config, logical axes) -> the initializer of a kernel or embeddings. None means
    # BERT's.
    initializer: Callable[..., Any] | None = None
    # What the names mean: `layer` with `epilogue`, `positions` and `attention`.
    layer_class: Any = dataclasses.field(kw_only=True)  # a `models.encoder.Layer`
    position_encoding: Any = dataclasses.field(kw_only=True)  # `Positions`
    attend: Callable[..., Any] = dataclasses.field(kw_only=True)

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_size(self) -> int:
        """Numbers in a row of the embeddings: a family's field, or `hidden_size`."""
        return int(dict(self.family_fields).get("embedding_size", self.hidden_size))

    def field(self, name: str) -> Any:
        """Returns the value of one of `family_fields` or `own_fields`."""
        return dict(self.family_fields + self.own_fields)[name]

    def require_segments(self, count: int) -> None:
        """Raises UserError if texts have more segments than a BERT has embeddings for:
        JAX would clamp them without an error."""
        if count > self.type_vocab_size:
            raise UserError(
                f"config.model.type_vocab_size={self.type_vocab_size}: the data has "
                f"pairs of texts, which need {count}; set it to {count}, start from "
                "weights that have them, or use single texts"
            )


def pretraining_flops(
    config: BertConfig, length: int, predictions: int, pairs: int = 1
) -> int:
    """Returns model FLOPs of training on one row: matrix products only, 3 x forward.

    Args:
      length: Number of positions in the row.
      predictions: Number of positions that the masked LM head computes.
      pairs: Number of positions that the next sentence head computes.
    """
    hidden, width = config.hidden_size, config.embedding_size
    masked_lm = 2 * predictions * width * (hidden + config.vocab_size)
    heads = masked_lm + 2 * pairs * (hidden * hidden + 2 * hidden)
    return encoder_flops(config, length) + 3 * heads


def encoder_flops(config: BertConfig, length: int) -> int:
    """Returns `pretraining_flops` without heads and pooler."""
    layers = range(config.num_hidden_layers)
    return 3 * sum(config.layer_class.flops(config, length, i) for i in layers)
