"""Reads the fields that config.json and bert_config.json have in common."""

from pathlib import Path
from typing import Any

from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig
from bert_jax.runtime import untrusted

# The constructors' defaults, for fields that a file leaves out: BertConfig in
# modeling.py and in `transformers`, which differ in type_vocab_size only.
_INTEGERS = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}
_NUMBERS = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
# Fields that our config and theirs share, besides the activation.
FIELDS = (*_INTEGERS, "type_vocab_size", *_NUMBERS)
# Fields that must match for the parameters to be usable.
DECISIVE = (
    *("architecture", *_INTEGERS, "type_vocab_size", "hidden_act", "layer_norm_eps"),
    "causal",
)
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def bert_config(fields: dict[str, Any], path: Path, type_vocab_size: int) -> BertConfig:
    """The config in a config.json or bert_config.json; the names are the same.

    Args:
      type_vocab_size: the default of this field.

    Raises:
      UserError: a value has the wrong type, or no model here supports it.
    """
    values: dict[str, Any] = {}
    integers = {**_INTEGERS, "type_vocab_size": type_vocab_size}
    for name, default in (integers | _NUMBERS).items():
        value = fields.get(name, default)
        kind = int if name in integers else (int, float)
        # A billion is more than any size here, and fits a float.
        if (
            isinstance(value, bool)
            or not isinstance(value, kind)
            or not 0 <= value <= 1e9
        ):
            raise UserError(
                f"{path}: {name}={untrusted.shown(value)} is not a valid number"
            )
        values[name] = value if name in integers else float(value)
    act = fields.get("hidden_act", "gelu")
    if not isinstance(act, str) or act not in _ACTIVATIONS:
        raise UserError(
            f"{path}: hidden_act={untrusted.shown(act)}; supported are "
            f"{', '.join(_ACTIVATIONS)}"
        )
    values |= {"hidden_act": _ACTIVATIONS[act], "dtype": "float32"}
    values |= {"attention": "einsum", "remat": "none", "scan_layers": False}
    values["causal"] = bool(fields.get("is_decoder", False))
    values["architecture"] = "bert"
    try:
        return BertConfig.create(values, values["vocab_size"])
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
