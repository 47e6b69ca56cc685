"""The form of DeBERTa-v3 in Hugging Face's files."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.convert.layout import BERT, Layout, Weights, common_architectures
from bert_jax.convert.parameters import Array
from bert_jax.convert.tensors import Tensors
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig

# Fields of config.json with the same value in all models here, and the values of a file
# that leaves them out: `transformers` writes only what differs from its defaults.
_KIND: Mapping[str, tuple[Any, Any]] = {
    "relative_attention": (True, False),
    "position_biased_input": (False, True),
    "share_att_key": (True, False),
    "norm_rel_ebd": ("layer_norm", "none"),
    "pos_att_type": (["c2p", "p2c"], []),
    "conv_kernel_size": (0, 0),
    "type_vocab_size": (0, 0),
}
_PUBLISHED = "lm_predictions.lm_head"


class DebertaLayout(Layout):
    """The differences from BERT's layout."""

    family = "deberta_v3"
    architectures = common_architectures("DebertaV2")
    causal = ()
    # `transformers` has no class with this head, and leaves its tensors alone.
    further_architectures: Mapping[str, tuple[str, ...]] = {
        "replaced_tokens": ("replaced_tokens",)
    }
    shared = ("masked_lm", "replaced_tokens")
    prefix = "deberta."
    names = (
        (r"attention\.(query|key|value)", r"attention.self.\1_proj"),
        (r"^(sequence_classification|multiple_choice)\.dense", "pooler.dense"),
        (r"^replaced_tokens\.output", "mask_predictions.classifier"),
        ("^replaced_tokens", "mask_predictions"),
        (r"^bert\.distances\.layer_norm", "deberta.encoder.LayerNorm"),
        (r"^bert\.distances", "deberta.encoder.rel_embeddings"),
        *BERT.names,
        (r"^bert\.", prefix),
    )
    tied: Mapping[str, Any] = {
        "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    # The defaults are those of version 2's XLarge.
    fields: Mapping[str, Any] = {
        **{
            name: BERT.fields[name] for name in BERT.fields if name != "type_vocab_size"
        },
        "vocab_size": ("vocab_size", 128100),
        "hidden_size": ("hidden_size", 1536),
        "num_hidden_layers": ("num_hidden_layers", 24),
        "num_attention_heads": ("num_attention_heads", 24),
        "intermediate_size": ("intermediate_size", 6144),
        "layer_norm_eps": ("layer_norm_eps", 1e-7),
    }
    fixed: Mapping[str, Any] = {name: value for name, (value, _) in _KIND.items()}
    fixed_of_parts: Mapping[str, Any] = {
        "sequence_classification": {"pooler_hidden_act": "gelu"},
        "multiple_choice": {"pooler_hidden_act": "gelu"},
    }
    has_direction = False

    def config(self, fields: Mapping[str, Any], path: Path) -> BertConfig:
        given = {name: default for name, (_, default) in _KIND.items()}
        given |= {name: x for name, x in fields.items() if x is not None}
        types = given["pos_att_type"]
        given["pos_att_type"] = sorted(
            types.lower().split("|") if isinstance(types, str) else types
        )
        sizes = {
            "embedding_size": given.get("hidden_size"),
            "pooler_hidden_size": given.get("hidden_size"),
            "max_relative_positions": given.get("max_position_embeddings"),
        }
        for name, size in sizes.items():
            if given.get(name, -1) not in (-1, 0, size):
                raise UserError(
                    f"{path}: {name}={given[name]!r:.80}; only a "
                    f"DeBERTa-v3 with {size} can be read"
                )
        return super().config(given, path)

    def model_fields(
        self, values: Mapping[str, Any], fields: Mapping[str, Any], path: Path
    ) -> dict[str, Any]:
        """Returns those of the family, and those that all models have."""
        buckets = fields.get("position_buckets", -1)
        kind = {"layer": self.family, "type_vocab_size": 1}
        return {**kind, "position_buckets": buckets}

    def rename(
        self, tensors: Tensors, fields: Mapping[str, Any], config: BertConfig
    ) -> None:
        """Also renames the published names of the masked LM, which `transformers` has
        with `legacy=False`. A discriminator's file has one, too, but only a generator's
        is trained."""
        is_masked_lm = "ForMaskedLM" in str(fields.get("architectures"))
        if is_masked_lm or "mask_predictions.classifier.bias" not in tensors.shapes:
            tensors.rename(f"{_PUBLISHED}.bias", "cls.predictions.bias")
            for name in [x for x in tensors.shapes if x.startswith(_PUBLISHED)]:
                renamed = name.replace(_PUBLISHED, "cls.predictions.transform")
                tensors.rename(name, renamed)
        super().rename(tensors, fields, config)

    def name_of(self, heads: Collection[str], causal: bool) -> str:
        return super().name_of({*heads} - {"replaced_tokens"}, causal)

    def tensors(self, weights: Weights) -> dict[str, Array]:
        tensors = super().tensors(weights)
        if "replaced_tokens" in weights.params:
            for each in self.parameters("replaced_tokens", weights.config):
                tensors[each.name] = each.convert_to_torch(
                    np.asarray(each.get_value(weights.params))
                )
        return tensors

    def config_fields(self, weights: Weights) -> dict[str, Any]:
        own = dict(weights.config.family_fields)
        return {**super().config_fields(weights), **own, "max_relative_positions": -1}


LAYOUT = DebertaLayout()
