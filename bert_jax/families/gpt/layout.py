"""The form of OpenAI's GPT in Hugging Face's files.

There query, key and value are one matrix (Conv1D), [inputs, outputs] as here. A linear
layer of a head is [outputs, inputs].
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax import tokenization
from bert_jax.convert.layout import Layout, Weights
from bert_jax.convert.parameters import Array
from bert_jax.convert.tensors import Tensors
from bert_jax.errors import UserError
from bert_jax.families.gpt.vocabulary import SPECIAL_TOKENS
from bert_jax.models.config import BertConfig

TABLE = "transformer.tokens_embed.weight"
# Seed of the rows that a vocabulary's special tokens add: always the same ones.
_SEED = 0


class GptLayout(Layout):
    """The differences from BERT's layout."""

    family = "gpt"
    bare_heads = ("masked_lm",)  # the language model's matrix is the embeddings'
    architectures: Mapping[str, Any] = {
        "OpenAIGPTLMHeadModel": ("masked_lm",),
        "OpenAIGPTModel": (),
        "OpenAIGPTForSequenceClassification": ("sequence_classification",),
        "OpenAIGPTDoubleHeadsModel": ("masked_lm", "multiple_choice"),
    }
    # Named like BERT's. `transformers` has no such classes for a GPT.
    further_architectures: Mapping[str, Any] = {
        "OpenAIGPTForTokenClassification": ("token_classification",),
        "OpenAIGPTForQuestionAnswering": ("question_answering",),
    }
    # All read the last token, and do so in `transformers`.
    causal = tuple(architectures)
    shared = ()
    prefix = "transformer."
    tied: Mapping[str, Any] = {"lm_head.weight": TABLE}
    names = (
        (r"(kernel|scale|embedding)$", "weight"),
        (r"^bert\.embeddings\.word_embeddings", "transformer.tokens_embed"),
        (r"^bert\.embeddings\.position_embeddings", "transformer.positions_embed"),
        (r"^bert\.encoder\.layer_", "transformer.h."),
        (r"attention\.(query|key|value)", "attn.c_attn"),
        (r"attention\.output", "attn.c_proj"),
        ("attention_layer_norm", "ln_1"),
        ("layer_norm", "ln_2"),
        ("intermediate", "mlp.c_fc"),
        (r"(\d)\.output", r"\1.mlp.c_proj"),
        ("^multiple_choice", "multiple_choice_head.summary"),
        # No bias of a classifier, and no other heads
        (r"^sequence_classification\.weight", "score.weight"),
        (r"^(\w+_classification|question_answering)\..*", ""),
    )
    fuses = True
    conv = r"transformer\.h\."
    # The causal mask, which old versions saved in every layer.
    buffers = r"(transformer\.)?h\.\d+\.attn\.bias"
    fields: Mapping[str, Any] = {
        "vocab_size": ("vocab_size", 40478),
        "hidden_size": ("n_embd", 768),
        "num_hidden_layers": ("n_layer", 12),
        "num_attention_heads": ("n_head", 12),
        "max_position_embeddings": ("n_positions", 512),
        "hidden_dropout_prob": ("resid_pdrop", 0.1),
        "attention_probs_dropout_prob": ("attn_pdrop", 0.1),
        "initializer_range": ("initializer_range", 0.02),
        "layer_norm_eps": ("layer_norm_epsilon", 1e-5),
    }
    activation: tuple[str, Mapping[str, str]] = (
        "afn",
        {"gelu_new": "gelu_tanh", "gelu": "gelu_tanh", "relu": "relu"},
    )
    fixed: Mapping[str, Any] = {}
    has_direction = False

    def export_error(self, task: Mapping[str, Any]) -> str:
        if not task.get("both_orders", False):
            return ""
        return (
            "config.task.both_orders=True adds the vectors of both orders of a pair; "
            "Hugging Face's GPT has no such part"
        )

    def model_fields(
        self, values: Mapping[str, Any], fields: Mapping[str, Any], path: Path
    ) -> dict[str, Any]:
        """Returns rows for the special tokens that the vocabulary next to them has and
        the
        embeddings lack: three for the released folder, none for an export."""
        tokenizer, rows = (
            tokenization.load_folder_tokenizer(path.parent),
            values["vocab_size"],
        )
        pieces = tokenizer.get_vocab_size() if tokenizer else rows
        max_rows = rows + len(SPECIAL_TOKENS)
        return {
            "vocab_size": pieces if rows < pieces <= max_rows else rows,
            "intermediate_size": 4 * values["hidden_size"],
            "type_vocab_size": 1,
            "causal": True,
        }

    def adapt(self, tensors: Tensors, config: BertConfig) -> None:
        """Draws the rows of the special tokens from a normal distribution of
        `initializer_range`, always alike."""
        rows, size = tensors.shapes.get(TABLE, (0, 0))
        if 0 < rows < config.vocab_size <= rows + len(SPECIAL_TOKENS):
            shape = (config.vocab_size - rows, size)
            spread = config.initializer_range
            drawn = np.random.default_rng(_SEED).normal(0.0, spread, shape)
            tensors.append(TABLE, drawn.astype(np.float32))

    def tensors(self, weights: Weights) -> dict[str, Array]:
        """Returns the tensors of model.safetensors.

        `transformers`' classifier has no bias. Ours goes into the last LayerNorm's, by
        the smallest change that gives the same logits.
        """
        if "sequence_classification" in self.architectures[weights.architecture]:
            weights = dataclasses.replace(weights, params=_without_bias(weights))
        return super().tensors(weights)

    def config_fields(self, weights: Weights) -> dict[str, Any]:
        """Returns the model's fields of config.json.

        Raises:
          UserError: Hugging Face's GPT does not have these sizes.
        """
        config = weights.config
        if config.intermediate_size != 4 * config.hidden_size:
            raise UserError(
                f"config.model.intermediate_size={config.intermediate_size}: in "
                "Hugging Face's GPT it is 4 x hidden_size, so it cannot be exported"
            )
        dropout = ("embd_pdrop", "summary_first_dropout")
        same = dict.fromkeys(dropout, config.hidden_dropout_prob)
        return super().config_fields(weights) | same


LAYOUT = GptLayout()


def _without_bias(weights: Weights) -> dict[str, Any]:
    """Returns the same classifier, its bias moved into the last layer's output."""
    head, bert = (weights.params[x] for x in ("sequence_classification", "bert"))
    kernel = np.asarray(head["kernel"], np.float64)  # [hidden, labels]
    bias = np.asarray(head["bias"], np.float64)
    moved, *_ = np.linalg.lstsq(kernel.T, bias, rcond=None)
    if not np.allclose(kernel.T @ moved, bias, atol=1e-6):
        raise UserError(
            "the classifier's bias cannot be moved into the last LayerNorm, whose "
            f"{len(kernel)} numbers do not determine {len(bias)} outputs; Hugging "
            "Face's classifier has no bias, so it cannot be exported"
        )
    last = f"layer_{weights.config.num_hidden_layers - 1}"
    layer = bert["encoder"][last]
    norm = layer["layer_norm"]
    norm = {**norm, "bias": (norm["bias"] + moved).astype(np.float32)}
    encoder = {**bert["encoder"], last: {**layer, "layer_norm": norm}}
    return {**weights.params, "bert": {**bert, "encoder": encoder}}
