"""BERT in Hugging Face's form: its tensors, config.json and tokenizer."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bert_jax.convert import config as config_json
from bert_jax.convert import layout, reading
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig
from bert_jax.runtime import untrusted
from bert_jax.tokenization import SPECIAL_TOKENS

DIALECT = "huggingface"
# Position numbers, which old versions saved.
BUFFER = re.compile(r"bert\.embeddings\.position_ids")
# The Hub's names of what a model of each architecture does.
PIPELINES = {
    "BertModel": "feature-extraction",
    "BertForPreTraining": "fill-mask",
    "BertForMaskedLM": "fill-mask",
    "BertLMHeadModel": "text-generation",
    "BertForSequenceClassification": "text-classification",
    "BertForTokenClassification": "token-classification",
    "BertForQuestionAnswering": "question-answering",
    "BertForMultipleChoice": "multiple-choice",
}
_DECODER = "cls.predictions.decoder"
_TIED = {
    f"{_DECODER}.weight": "bert.embeddings.word_embeddings.weight",
    f"{_DECODER}.bias": "cls.predictions.bias",
}
_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu": "relu"}


def read(
    tensors: reading.Files,
    fields: Mapping[str, Any],
    folder: Path,
    labels: tuple[str, ...],
    place: Callable[[layout.Array], Any],
) -> layout.Weights:
    """Reads a model that `transformers` saved, as float32.

    Args:
      fields: its config.json.
      folder: its folder.
      labels: the names of a classifier's outputs.
      place: see `reading.build`.

    Raises:
      UserError: a tensor is missing or damaged, or the model is of another kind.
    """
    architecture = _architecture(fields, folder / "config.json")
    config = read_config(fields, folder)
    reading.check_layers(tensors, config)
    parts = layout.parts_present(tensors.shapes, config, architecture, DIALECT)
    known: set[str] = set()
    if fields.get("tie_word_embeddings") is False and "masked_lm" in parts:
        parts.append("decoder")
        # If the matrix is not tied, the decoder's own bias is the one that counts.
        tensors.replace("cls.predictions.bias", f"{_DECODER}.bias")
    else:
        known |= check_tied(
            tensors,
            _TIED,
            'config.json ties them; set "tie_word_embeddings": false there if they '
            "were trained separately",
        )
    name = layout.all_of(architecture, parts)
    return weights_of(
        tensors, config, name, parts, layout.parameters, labels, known, place
    )


def weights_of(
    tensors: reading.Source,
    config: BertConfig,
    architecture: str,
    parts: Sequence[str],
    parameters: Callable[..., Iterable[layout.Parameter]],
    labels: tuple[str, ...],
    known: Set[str],
    place: Callable[[layout.Array], Any],
    dialect: str = DIALECT,
) -> layout.Weights:
    """The weights of `bert` and of other parts.

    Args:
      parts: the others.
      parameters: of a part, called as `layout.parameters` is.
      labels: see `read`.
      known: tensors that are not read and need not be, such as tied copies.
      place: see `reading.build`.

    Raises:
      UserError: a tensor is missing or damaged.
    """
    expected = [
        parameter
        for part in ("bert", *parts)
        for parameter in parameters(part, config, len(labels))
    ]
    known = known | {parameter.name(dialect) for parameter in expected}
    return layout.Weights(
        config=config,
        params=reading.build(tensors, config, expected, dialect, place),
        architecture=architecture,
        labels=labels if set(parts) & set(layout.LABELLED_HEADS) else (),
        left_over=tuple(sorted(set(tensors.shapes) - known)),
    )


def read_config(fields: Mapping[str, Any], folder: Path) -> BertConfig:
    """The model's sizes; raises UserError if they are wrong or not supported."""
    return config_json.bert_config(
        dict(fields), folder / "config.json", type_vocab_size=2
    )


def named(
    fields: Mapping[str, Any], path: Path, known: Iterable[str], default: str
) -> str:
    """The architecture that a config.json names; raises UserError if it is not known.

    Args:
      path: of config.json, for errors.
      default: where it names none.
    """
    named = fields.get("architectures") or [default]
    architecture = named[0] if isinstance(named, list) else named
    if not isinstance(architecture, str) or architecture not in known:
        raise UserError(
            f"{path}: architecture {untrusted.shown(architecture)} is not supported; "
            f"supported are {', '.join(known)}"
        )
    return architecture


def _architecture(fields: Mapping[str, Any], path: Path) -> str:
    architecture = named(fields, path, layout.ARCHITECTURES, "BertModel")
    position = fields.get("position_embedding_type", "absolute")
    if position != "absolute":
        raise UserError(
            f"{path}: position_embedding_type={untrusted.shown(position)}; must be "
            "'absolute'"
        )
    if fields.get("add_cross_attention"):
        raise UserError(f"{path}: add_cross_attention is set; it cannot be read")
    if fields.get("is_decoder") and architecture not in layout.CAUSAL:
        raise UserError(
            f"{path}: is_decoder is set, left to right, and architecture "
            f"{untrusted.shown(architecture)} reads [CLS], which has seen nothing "
            f"then; only {', '.join(layout.CAUSAL)} can be read"
        )
    return architecture


def check_tied(
    tensors: reading.Files, copies: Mapping[str, str], otherwise: str
) -> set[str]:
    """The names of copies of tied parameters that the file has besides the originals.

    Args:
      copies: each copy's original.
      otherwise: why a copy must not differ, and what to do where one does.

    Raises:
      UserError: a copy differs; which one counts depends on the `transformers` version.
    """
    present = {c: o for c, o in copies.items() if {c, o} <= tensors.shapes.keys()}
    for copy, original in present.items():
        if not np.array_equal(tensors.read(copy), tensors.read(original)):
            raise UserError(
                f"{tensors.where}: {copy} differs from {original}, but {otherwise}"
            )
    return set(present)


def tensors_of(weights: layout.Weights) -> dict[str, layout.Array]:
    """The tensors of model.safetensors."""
    config, architecture = weights.config, weights.architecture
    parts = ["bert", *layout.ARCHITECTURES[architecture]]
    if "masked_lm" in parts and "decoder" in weights.params:
        parts.append("decoder")
    if architecture == "BertModel" and "pooler" not in weights.params["bert"]:
        parts.remove("pooler")
    tensors = {}
    for part in parts:
        for parameter in layout.parameters(part, config, len(weights.labels)):
            value = parameter.of(weights.params)
            tensors[parameter.huggingface] = parameter.give(value, DIALECT)
    if "decoder" in parts:
        # Where the matrix is not tied, `transformers` saves both and uses the second.
        bias = tensors["cls.predictions.bias"]
        tensors["cls.predictions.decoder.bias"] = bias.copy()
    if architecture == "BertModel":
        return {name.removeprefix("bert."): v for name, v in tensors.items()}
    return tensors


def config_fields(weights: layout.Weights) -> dict[str, Any]:
    """The model's fields of config.json, without its labels."""
    config = weights.config
    fields: dict[str, Any] = {
        "architectures": [weights.architecture],
        "model_type": "bert",
        **{name: getattr(config, name) for name in config_json.FIELDS},
        "hidden_act": _ACTIVATIONS[config.hidden_act],
        "position_embedding_type": "absolute",
        "tie_word_embeddings": "decoder" not in weights.params,
    }
    if config.causal:
        fields["is_decoder"] = True
    return fields


def tokenizer_fields(
    tokenizer: Tokenizer, weights: layout.Weights
) -> tuple[Tokenizer, dict[str, Any], dict[str, str]]:
    """The tokenizer to save, its fields of tokenizer_config.json, and the names of its
    special tokens."""
    del weights
    normalizer = json.loads(tokenizer.to_str())["normalizer"] or {}
    fields = {
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "do_lower_case": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
    }
    special = {f"{t.strip('[]').lower()}_token": t for t in SPECIAL_TOKENS}
    return tokenizer, fields, special
