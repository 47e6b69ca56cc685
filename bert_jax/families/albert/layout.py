"""The form of ALBERT in Hugging Face's files."""

from collections.abc import Mapping
from typing import Any

from bert_jax.convert.layout import BERT, Layout, common_architectures


class AlbertLayout(Layout):
    """The differences from BERT's layout."""

    family = "albert"
    architectures: Mapping[str, tuple[str, ...]] = {
        **common_architectures(
            "Albert", "Model", "ForSequenceClassification", "ForMultipleChoice"
        ),
        # Their second head tells whether the texts are in order.
        "AlbertForPreTraining": ("pooler", "masked_lm", "next_sentence"),
    }
    causal = ()
    prefix = "albert."
    names = (
        (r"(kernel|scale|embedding)$", "weight"),
        (r"^bert\.pooler", "albert.pooler"),
        (r"^bert\.embedding_projection", "albert.encoder.embedding_hidden_mapping_in"),
        (r"layer_0", "albert_layer_groups.0.albert_layers.0"),
        (r"attention\.output", "attention.dense"),
        ("attention_layer_norm", "attention.LayerNorm"),
        (r"(\d)\.layer_norm", r"\1.full_layer_layer_norm"),
        (r"(embeddings|^masked_lm)\.layer_norm", r"\1.LayerNorm"),
        ("intermediate", "ffn"),
        (r"(\d)\.output", r"\1.ffn_output"),
        (r"^bert\.", prefix),
        ("^masked_lm", "predictions"),
        ("^next_sentence", "sop_classifier.classifier"),
        ("^question_answering", "qa_outputs"),
        (r"^(\w+_classification|multiple_choice)", "classifier"),
    )
    tied: Mapping[str, Any] = {
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    }
    # The defaults are XXLarge's.
    fields: Mapping[str, Any] = {
        **BERT.fields,
        "vocab_size": ("vocab_size", 30000),
        "embedding_size": ("embedding_size", 128),
        "hidden_size": ("hidden_size", 4096),
        "num_attention_heads": ("num_attention_heads", 64),
        "intermediate_size": ("intermediate_size", 16384),
        "hidden_dropout_prob": ("hidden_dropout_prob", 0.0),
        "attention_probs_dropout_prob": ("attention_probs_dropout_prob", 0.0),
    }
    fixed: Mapping[str, Any] = {"num_hidden_groups": 1, "inner_group_num": 1}
    has_direction = False
    numbers = ""  # all layers have the same parameters

    def model_fields(self, *_: Any) -> dict[str, Any]:
        return {}


LAYOUT = AlbertLayout()
