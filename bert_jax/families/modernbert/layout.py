"""The form of ModernBERT in Hugging Face's files, where query, key and value are one
matrix, as are the two halves of a GeGLU."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.config import fields as config_fields
from bert_jax.convert.layout import BERT, Layout, Weights, common_architectures
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.types import ParamPath

_KINDS = {"global": "full_attention", "local": "sliding_attention"}


class ModernBertLayout(Layout):
    """The differences from BERT's layout."""

    family = "modernbert"
    architectures = common_architectures("ModernBert")
    causal = ()
    shared = ()
    prefix = "model."
    tied: Mapping[str, Any] = {
        "decoder.weight": "model.embeddings.tok_embeddings.weight"
    }
    names = (
        (r"(kernel|scale|embedding)$", "weight"),
        (r"^bert\.embeddings\.word_embeddings", "model.embeddings.tok_embeddings"),
        (r"^bert\.embeddings\.layer_norm", "model.embeddings.norm"),
        (r"^bert\.encoder\.final_layer_norm", "model.final_norm"),
        (r"^bert\.encoder\.layer_", "model.layers."),
        (r"attention\.(query|key|value)", "attn.Wqkv"),
        (r"attention\.output", "attn.Wo"),
        ("attention_layer_norm", "attn_norm"),
        (r"(\d)\.layer_norm", r"\1.mlp_norm"),
        ("intermediate", "mlp.Wi"),
        (r"(\d)\.output", r"\1.mlp.Wo"),
        (r"^bert\.head\.layer_norm", "head.norm"),
        (r"^bert\.head", "head"),
        ("^masked_lm", "decoder"),
        (r"^(\w+_classification|question_answering|multiple_choice)", "classifier"),
    )
    fuses = True
    buffers = r".*\.rotary_emb\.inv_freq"
    # The defaults are Base's.
    fields: Mapping[str, Any] = {
        "vocab_size": ("vocab_size", 50368),
        "hidden_size": ("hidden_size", 768),
        "num_hidden_layers": ("num_hidden_layers", 22),
        "num_attention_heads": ("num_attention_heads", 12),
        "intermediate_size": ("intermediate_size", 1152),
        "max_position_embeddings": ("max_position_embeddings", 8192),
        "hidden_dropout_prob": ("classifier_dropout", 0.0),
        "attention_probs_dropout_prob": ("attention_dropout", 0.0),
        "initializer_range": ("initializer_range", 0.02),
        "layer_norm_eps": ("norm_eps", 1e-5),
    }
    activation: tuple[str, Mapping[str, str]] = (
        "hidden_activation",
        BERT.activation[1],
    )
    fixed: Mapping[str, Any] = {
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
    }
    fixed_of_parts: Mapping[str, Any] = {
        "masked_lm": {"decoder_bias": True, "classifier_bias": False},
        "sequence_classification": {"classifier_bias": False},
        "token_classification": {"classifier_bias": False},
        "question_answering": {"classifier_bias": False},
        "multiple_choice": {"classifier_bias": False},
    }
    has_direction = False

    def is_of(self, part: str, path: ParamPath) -> bool:
        """Returns whether a part has this parameter. All heads have `bert/head`."""
        return part != "bert" if path[:2] == ("bert", "head") else part == path[0]

    def model_fields(
        self, values: Mapping[str, Any], fields: Mapping[str, Any], path: Path
    ) -> dict[str, Any]:
        """Returns those of the family, from either form of a config.json."""
        act = fields.get("hidden_activation", "gelu")
        if (other := fields.get("classifier_activation", act)) != act:
            raise _unread(path, "classifier_activation", other, f"that is {act}")
        own: dict[str, Any] = {}
        for name, default in config_fields.family_model_fields(
            FAMILIES[self.family]
        ).items():
            value = fields.get(name, default)
            is_whole = isinstance(default, float) and type(value) is int
            own[name] = float(value) if is_whole else value
        rope, layers = fields.get("rope_parameters") or {}, fields.get("layer_types")
        for reach, layer_type in _KINDS.items():
            angles = rope.get(layer_type, {})
            if angles.get("rope_type", "default") != "default":
                raise _unread(path, "rope_parameters", rope, "of the rope_type default")
            theta = f"{reach}_rope_theta"
            own[theta] = float(angles.get("rope_theta", own[theta]))
        if layers:
            at = [
                index for index, kind in enumerate(layers) if kind == _KINDS["global"]
            ]
            # With one global layer, the list alone only means that no other fits.
            period = max(len(layers), own["global_attn_every_n_layers"])
            own["global_attn_every_n_layers"] = every = (*at, period, period)[1]
            if layers != _layer_types(len(layers), every):
                form = "with a global layer every few"
                raise _unread(path, "layer_types", layers, form)
        same = {"layer": self.family, "positions": self.family, "type_vocab_size": 1}
        return {**own, **same}

    def config_fields(self, weights: Weights) -> dict[str, Any]:
        fields, family = super().config_fields(weights), weights.config.field
        count = weights.config.num_hidden_layers
        every = int(family("global_attn_every_n_layers"))
        return {
            **fields,
            **dict(weights.config.family_fields),
            "classifier_activation": fields["hidden_activation"],
            "layer_types": _layer_types(count, every),
            "rope_parameters": {
                kind: {
                    "rope_type": "default",
                    "rope_theta": family(f"{reach}_rope_theta"),
                }
                for reach, kind in _KINDS.items()
            },
        }


LAYOUT = ModernBertLayout()


def _unread(path: Path, name: str, value: Any, kind: str) -> UserError:
    what = f"{path}: {name}={value!r:.80}"
    return UserError(f"{what}; only one {kind} is read")


def _layer_types(count: int, every: int) -> list[str]:
    return [_KINDS["local" if index % every else "global"] for index in range(count)]
