"""The form of ELECTRA in Hugging Face's files."""

from collections.abc import Mapping
from typing import Any

from bert_jax.convert.layout import BERT, Layout, common_architectures


class ElectraLayout(Layout):
    """The differences from BERT's layout."""

    family = "electra"
    architectures: Mapping[str, tuple[str, ...]] = {
        **common_architectures("Electra"),
        "ElectraForPreTraining": ("replaced_tokens",),
    }
    causal = ()
    shared = ()
    prefix = "electra."
    names = (
        (r"^(sequence_classification)\.(kernel|bias)", r"\1.out_proj.\2"),
        (r"^replaced_tokens\.output", "replaced_tokens.dense_prediction"),
        (r"^masked_lm\.bias", "generator_lm_head.bias"),
        ("^masked_lm", "generator_predictions"),
        ("^replaced_tokens", "discriminator_predictions"),
        (r"^multiple_choice\.dense", "sequence_summary.summary"),
        ("embedding_projection", "embeddings_project"),
        *BERT.names,
        (r"^bert\.", prefix),
    )
    tied: Mapping[str, Any] = {
        "generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"
    }
    fields: Mapping[str, Any] = {
        **BERT.fields,
        "embedding_size": ("embedding_size", 128),
        "hidden_size": ("hidden_size", 256),
        "num_attention_heads": ("num_attention_heads", 4),
        "intermediate_size": ("intermediate_size", 1024),
    }
    fixed_of_parts: Mapping[str, Any] = {
        "multiple_choice": {
            "summary_type": "first",
            "summary_use_proj": True,
            "summary_activation": "gelu",
        }
    }


LAYOUT = ElectraLayout()
