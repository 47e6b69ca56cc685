"""The form of MPNet in Hugging Face's files."""

from collections.abc import Mapping
from typing import Any

from bert_jax.convert.layout import BERT, Layout, common_architectures
from bert_jax.families.mpnet.model import BUCKETS
from bert_jax.families.roberta import PAD
from bert_jax.families.roberta.layout import LAYOUT as ROBERTA
from bert_jax.families.roberta.model import FIRST


class MPNetLayout(Layout):
    """The differences from BERT's layout."""

    family = "mpnet"
    architectures = common_architectures("MPNet", "Model", "ForMultipleChoice")
    causal = ()
    shared = ("pooler",)
    prefix = "mpnet."
    names = (
        (r"^bert\.relative_bias", "bert.encoder.relative_attention_bias"),
        (r"attention\.([qkv])(uery|ey|alue)", r"attention.attn.\1"),
        (r"attention\.output\.", "attention.attn.o."),
        ("attention_layer_norm", "attention.LayerNorm"),
        *ROBERTA.names,
    )
    renames = (
        (r"^bert\.", prefix),
        *ROBERTA.renames[1:],
    )
    tied: Mapping[str, Any] = {
        "lm_head.decoder.weight": "mpnet.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    fields: Mapping[str, Any] = {
        name: BERT.fields[name] for name in BERT.fields if name != "type_vocab_size"
    } | {"vocab_size": ("vocab_size", 30527)}
    fixed: Mapping[str, Any] = {
        "pad_token_id": PAD,
        "relative_attention_num_buckets": BUCKETS,
    }
    first_position = FIRST
    has_direction = False

    def model_fields(self, *_: Any) -> dict[str, Any]:
        """Returns those that all models have."""
        return {"type_vocab_size": 1}


LAYOUT = MPNetLayout()
