"""The model's hyperparameters, checked, and the FLOPs that follow from them."""

from __future__ import annotations

import dataclasses
from typing import Any

from bert_jax.config import fields
from bert_jax.config.field import require_value
from bert_jax.errors import UserError
from bert_jax.registry import FAMILIES

# Values of `model.attention` that are kernels, which compute the same as einsum and
# keep no probabilities: the devices that have them, and the head sizes that they take.
KERNELS = {"fused": ("gpu", "tpu"), "cudnn": ("gpu",)}
SUPPORTED_HEAD_DIMS = {
    "fused": (16, 32, 64, 128),  # Triton's blocks are powers of 2
    "cudnn": tuple(range(8, 129, 8)),  # on any GPU (newer ones take larger)
}
# Tokens of the longest row that the TPU's kernel with dropout computes.
LONGEST_WHOLE_ROW = 1024
_OF_YOUR_OWN = ("attention", "layer", "positions")  # may be a config file's
MASK_VALUE = -1e4  # added to the scores of keys that a query does not see (modeling.py)


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The fields of bert_config.json, four that select the kind of model, and five
    that select how it is computed or initialized."""

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
    dtype: str
    attention: str
    remat: str
    scan_layers: bool
    epilogue: str = "xla"  # or fused: how the operations after a product are computed
    causal: bool = False  # each position attends to those up to its own
    architecture: str = "bert"  # a name in FAMILIES
    position_initializer: str = "normal"  # or sinusoidal
    layer: str = "post_norm"  # a name in LAYERS
    positions: str = "learnt"  # a name in POSITIONS
    family_fields: tuple[tuple[str, Any], ...] = ()  # the family's `fields.of_model`

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_size(self) -> int:
        """Numbers in a row of the embeddings: a family's field, or `hidden_size`."""
        return int(dict(self.family_fields).get("embedding_size", self.hidden_size))

    @classmethod
    def create(cls, model: Any, vocab_size: int) -> BertConfig:
        """Checks `config.model`.

        Args:
          model: `config.model`. A `vocab_size` of 0 means the tokenizer's.
          vocab_size: Number of tokens in the tokenizer's vocabulary.

        Raises:
          UserError: A value is invalid.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        values = {name: model[name] for name in names if name in model}
        values["vocab_size"] = values["vocab_size"] or vocab_size
        family = FAMILIES.lookup(values.get("architecture", "bert"))
        others = fields.of_model(family).items()
        values["family_fields"] = tuple(
            (name, model.get(name, default)) for name, default in others
        )
        config = cls(**values)
        config._check()
        return config

    def field(self, name: str) -> Any:
        """Returns the value of one of `family_fields`."""
        return dict(self.family_fields)[name]

    def require_segments(self, count: int) -> None:
        """Raises UserError if texts have more segments than a BERT has embeddings for:
        JAX would clamp them without an error."""
        if count > self.type_vocab_size:
            raise UserError(
                f"config.model.type_vocab_size={self.type_vocab_size}: the data has "
                f"pairs of texts, which need {count}; set it to {count}, start from "
                "weights that have them, or use single texts"
            )

    def of_your_own(self) -> list[str]:
        """Returns the components from a config file that this model computes with."""
        ours = ("einsum", *KERNELS, "post_norm", "learnt")
        named = {name: getattr(self, name) for name in _OF_YOUR_OWN}
        brought = FAMILIES[self.architecture].registry_entries
        return [
            f"{name} {of}"
            for name, of in named.items()
            if of not in ours and of not in brought.get(f"model.{name}", ())
        ]

    def _check(self) -> None:
        known = fields.FIELDS | dict(FAMILIES.lookup(self.architecture).fields)
        for name, value in (*vars(self).items(), *self.family_fields):
            if name not in (*_OF_YOUR_OWN, "family_fields"):
                require_value(known, f"model.{name}", value)
        if not self.vocab_size:
            raise UserError("config.model.vocab_size=0: must be at least 1")
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"config.model.num_attention_heads={self.num_attention_heads} does not "
                f"divide config.model.hidden_size={self.hidden_size}"
            )
        heads = SUPPORTED_HEAD_DIMS.get(self.attention, (self.head_dim,))
        if self.head_dim not in heads:
            raise UserError(
                f"config.model.attention={self.attention}: heads (config.model."
                f"hidden_size / num_attention_heads) of {self.head_dim}, but it "
                f"computes those of {', '.join(map(str, heads))} only; choose einsum"
            )
        if self.epilogue == "fused" and self.layer != "post_norm":
            raise UserError(
                "config.model.epilogue=fused: not for layers of the kind "
                f"{self.layer}; choose xla"
            )
        FAMILIES[self.architecture].check(self)


def pretraining_flops(
    config: BertConfig, length: int, predictions: int, pairs: int = 1
) -> int:
    """Returns model FLOPs of training on one row: matrix products only, 3 x forward.

    Args:
      length: Number of positions in the row.
      predictions: Number of positions that the masked LM head computes.
      pairs: Number of positions that the next sentence head computes.
    """
    heads = FAMILIES[config.architecture].head_flops(config, predictions, pairs)
    return encoder_flops(config, length) + 3 * heads


def encoder_flops(config: BertConfig, length: int) -> int:
    """Returns `pretraining_flops` without heads and pooler."""
    each = FAMILIES[config.architecture].layer_flops
    layers = range(config.num_hidden_layers)
    return 3 * sum(each(config, length, index) for index in layers)
