"""The form of ModernBERT in Hugging Face's files, where query, key and value are one
matrix, as are the two halves of a GeGLU."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.config import fields as config_fields
from bert_jax.convert.layout import BERT, Layout, Weights, common_architectures
from bert_jax.convert.parameters import (
    Parameter,
    dense_parameters,
    embedding_table,
    norm_parameters,
)
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig
from bert_jax.runtime import untrusted

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
        "decoder_bias": True,
        "classifier_bias": False,
        "tie_word_embeddings": True,
    }
    has_direction = False

    def parameters(
        self, part: str, config: BertConfig, labels: int = 0
    ) -> Iterator[Parameter]:
        hidden = config.hidden_size
        if part == "bert":
            yield from _trunk(config)
            return
        yield from dense_parameters(
            "bert.head.dense", "head.dense", hidden, hidden, bias=False
        )
        yield from norm_parameters(
            "bert.head.layer_norm", "head.norm", hidden, bias=False
        )
        if part == "masked_lm":
            shape = (config.vocab_size,)
            yield Parameter((part, "bias"), shape, shape, "decoder.bias")
            return
        outputs = {"question_answering": 2, "multiple_choice": 1}.get(part, labels)
        yield from dense_parameters(part, "classifier", hidden, outputs)

    def model_fields(
        self, values: Mapping[str, Any], fields: Mapping[str, Any], path: Path
    ) -> dict[str, Any]:
        """Returns those of the family, from either form of a config.json."""
        act = fields.get("hidden_activation", "gelu")
        if (other := fields.get("classifier_activation", act)) != act:
            raise _unread(path, "classifier_activation", other, f"that is {act}")
        own: dict[str, Any] = {}
        for name, default in config_fields.of_model(FAMILIES[self.family]).items():
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
            most = max(len(layers), own["global_attn_every_n_layers"])
            own["global_attn_every_n_layers"] = every = (*at, most, most)[1]
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


def _trunk(config: BertConfig) -> Iterator[Parameter]:
    hidden, inner = config.hidden_size, config.intermediate_size
    heads = (config.num_attention_heads, config.head_dim)
    path, name = "bert.embeddings", "model.embeddings"
    words = f"{name}.tok_embeddings"
    yield embedding_table(f"{path}.word_embeddings", words, config.vocab_size, hidden)
    yield from norm_parameters(f"{path}.layer_norm", f"{name}.norm", hidden, bias=False)
    for index in range(config.num_hidden_layers):
        path, name = f"bert.encoder.layer_{index}", f"model.layers.{index}"
        for place, which in enumerate(("query", "key", "value")):
            ours, theirs = f"{path}.attention.{which}", f"{name}.attn.Wqkv"
            yield from dense_parameters(
                ours, theirs, hidden, heads, bias=False, fused=(place, 3)
            )
        for ours, theirs, inputs, outputs in (
            ("attention.output", "attn.Wo", heads, hidden),
            ("intermediate", "mlp.Wi", hidden, (2, inner)),
            ("output", "mlp.Wo", inner, hidden),
        ):
            names = f"{path}.{ours}", f"{name}.{theirs}"
            yield from dense_parameters(*names, inputs, outputs, bias=False)
        if index:
            ours = f"{path}.attention_layer_norm"
            yield from norm_parameters(ours, f"{name}.attn_norm", hidden, bias=False)
        yield from norm_parameters(
            f"{path}.layer_norm", f"{name}.mlp_norm", hidden, bias=False
        )
    last = "bert.encoder.final_layer_norm"
    yield from norm_parameters(last, "model.final_norm", hidden, bias=False)


def _unread(path: Path, name: str, value: Any, kind: str) -> UserError:
    what = f"{path}: {name}={untrusted.short_repr(value)}"
    return UserError(f"{what}; only one {kind} is read")


def _layer_types(count: int, every: int) -> list[str]:
    return [_KINDS["local" if index % every else "global"] for index in range(count)]
