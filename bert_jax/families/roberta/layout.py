"""The form of RoBERTa in Hugging Face's files, and of models that share its layers."""

from collections.abc import Mapping
from typing import Any

from bert_jax.convert.layout import BERT, Layout, common_architectures
from bert_jax.families.roberta import PAD
from bert_jax.families.roberta.model import FIRST


class RobertaLayout(Layout):
    """The differences from BERT's layout."""

    causal = ()
    shared = ("pooler",)
    prefix = "roberta."
    names = (
        (r"^sequence_classification\.(kernel|bias)", r"classifier.out_proj.\1"),
        *BERT.names,
    )
    renames = (
        (r"^bert\.", prefix),
        (r"^cls\.predictions\.transform\.LayerNorm", "lm_head.layer_norm"),
        (r"^cls\.predictions\.(transform\.)?", "lm_head."),
    )
    tied: Mapping[str, Any] = {
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    fields: Mapping[str, Any] = {**BERT.fields, "vocab_size": ("vocab_size", 50265)}
    fixed: Mapping[str, Any] = {
        **BERT.fixed,
        "pad_token_id": PAD,
    }
    first_position = FIRST

    def __init__(self, family: str, name: str):
        """Stores the family's name, and that of its models in `transformers`."""
        self.family = family
        self.architectures = common_architectures(name, "Model", "ForMultipleChoice")


LAYOUT = RobertaLayout("roberta", "Roberta")
XLM_ROBERTA = RobertaLayout("xlm_roberta", "XLMRoberta")
CAMEMBERT = RobertaLayout("camembert", "Camembert")
