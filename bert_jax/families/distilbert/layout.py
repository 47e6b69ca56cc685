"""The form of DistilBERT in Hugging Face's files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.convert.layout import BERT, Layout, common_architectures


class DistilBertLayout(Layout):
    """The differences from BERT's layout."""

    family = "distilbert"
    architectures = common_architectures("DistilBert")
    causal = ()
    shared = ()
    prefix = "distilbert."
    names = (
        (r"(kernel|scale|embedding)$", "weight"),
        (r"^bert\.encoder\.layer_", "distilbert.transformer.layer."),
        (r"^bert\.", prefix),
        (r"attention\.query", "attention.q_lin"),
        (r"attention\.key", "attention.k_lin"),
        (r"attention\.value", "attention.v_lin"),
        (r"attention\.output", "attention.out_lin"),
        ("attention_layer_norm", "sa_layer_norm"),
        (r"(\d)\.layer_norm", r"\1.output_layer_norm"),
        ("intermediate", "ffn.lin1"),
        (r"(\d)\.output\.", r"\1.ffn.lin2."),
        (r"embeddings\.layer_norm", "embeddings.LayerNorm"),
        (r"^masked_lm\.dense", "vocab_transform"),
        (r"^masked_lm\.layer_norm", "vocab_layer_norm"),
        (r"^masked_lm\.bias", "vocab_projector.bias"),
        ("^question_answering", "qa_outputs"),
        (r"^(sequence_classification|multiple_choice)\.dense", "pre_classifier"),
        (r"^(\w+_classification|multiple_choice)", "classifier"),
    )
    tied: Mapping[str, Any] = {
        "vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"
    }
    fields: Mapping[str, Any] = {
        "vocab_size": ("vocab_size", 30522),
        "hidden_size": ("dim", 768),
        "num_hidden_layers": ("n_layers", 6),
        "num_attention_heads": ("n_heads", 12),
        "intermediate_size": ("hidden_dim", 3072),
        "max_position_embeddings": ("max_position_embeddings", 512),
        "hidden_dropout_prob": ("dropout", 0.1),
        "attention_probs_dropout_prob": ("attention_dropout", 0.1),
        "initializer_range": ("initializer_range", 0.02),
    }
    activation: tuple[str, Mapping[str, str]] = ("activation", BERT.activation[1])
    fixed: Mapping[str, Any] = {}
    has_direction = False

    def model_fields(
        self, values: Mapping[str, Any], fields: Mapping[str, Any], path: Path
    ) -> dict[str, Any]:
        """Returns those that all models have."""
        return {"layer_norm_eps": 1e-12, "type_vocab_size": 1}


LAYOUT = DistilBertLayout()
