"""RoBERTa in Hugging Face's form: reads and writes tensors and config.json."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.convert import bert, layout, reading
from bert_jax.convert.config import bert_config
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig
from bert_jax.runtime import untrusted
from bert_jax.tokenization import byte_level
from families.roberta import check_padding
from families.roberta.layout import ARCHITECTURES, PREFIX, parameters
from families.roberta.model import FIRST, PAD

MODEL_TYPE = "roberta"
PIPELINES = {
    "RobertaModel": "feature-extraction",
    "RobertaForMaskedLM": "fill-mask",
    "RobertaForSequenceClassification": "text-classification",
    "RobertaForTokenClassification": "token-classification",
    "RobertaForQuestionAnswering": "question-answering",
    "RobertaForMultipleChoice": "multiple-choice",
}
# Numbers of positions and segments, which old versions saved.
BUFFER = re.compile(r"(ro)?bert(a)?\.embeddings\.(position|token_type)_ids")
# The tied copies, and what they are copies of.
_TIED = {
    "lm_head.decoder.weight": f"{PREFIX}embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}


def read(
    tensors: reading.Files,
    fields: Mapping[str, Any],
    folder: Path,
    labels: tuple[str, ...],
    place: Callable[[layout.Array], Any],
) -> layout.Weights:
    """Reads a RoBERTa that `transformers` saved, as float32; see `bert.read`.

    Raises:
      UserError: a tensor is missing or damaged, or the model is of another kind.
    """
    path = folder / "config.json"
    architecture = bert.named(fields, path, ARCHITECTURES, "RobertaModel")
    config = read_config(fields, folder)
    for name in list(tensors.shapes):  # a model without heads has no prefix
        if name.startswith("bert."):
            tensors.replace(PREFIX + name.removeprefix("bert."), name)
    reading.check_layers(tensors, config)
    known = bert.check_tied(
        tensors, _TIED, "a RoBERTa's are the same; such a model cannot be read"
    )
    parts = [part for part in ARCHITECTURES[architecture] if part != "pooler"]
    pooler = [parameter.huggingface for parameter in parameters("pooler", config)]
    if set(pooler) <= tensors.shapes.keys() or "multiple_choice" in parts:
        parts.append("pooler")
    return bert.weights_of(
        tensors, config, architecture, parts, parameters, labels, known, place
    )


def read_config(fields: Mapping[str, Any], folder: Path) -> BertConfig:
    """The model's sizes; raises UserError if they are wrong or not supported."""
    path = folder / "config.json"
    for name, value in (
        ("pad_token_id", PAD),
        ("position_embedding_type", "absolute"),
        ("add_cross_attention", False),
        ("tie_word_embeddings", True),
    ):
        if (read := fields.get(name, value)) != value:
            raise UserError(
                f"{path}: {name}={untrusted.shown(read)}; a RoBERTa with {value} can "
                "be read"
            )
    ours = {"vocab_size": 50265, "max_position_embeddings": 512, **fields}
    if isinstance(ours["max_position_embeddings"], int):  # else `bert_config` objects
        ours["max_position_embeddings"] -= FIRST
    sizes = bert_config(ours, path, type_vocab_size=2)
    config = dataclasses.replace(sizes, architecture=MODEL_TYPE)
    try:
        FAMILIES[MODEL_TYPE].check(config)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return config


def tensors_of(weights: layout.Weights) -> dict[str, layout.Array]:
    """The tensors of model.safetensors."""
    config, parts = weights.config, list(ARCHITECTURES[weights.architecture])
    bare = weights.architecture == "RobertaModel"
    if bare and "pooler" not in weights.params["bert"]:
        parts.remove("pooler")
    tensors = {
        parameter.huggingface: parameter.give(
            parameter.of(weights.params), bert.DIALECT
        )
        for part in ("bert", *parts)
        for parameter in parameters(part, config, len(weights.labels))
    }
    return {n.removeprefix(PREFIX): v for n, v in tensors.items()} if bare else tensors


def config_fields(weights: layout.Weights) -> dict[str, Any]:
    """The model's fields of config.json, without its labels."""
    positions = weights.config.max_position_embeddings + FIRST
    changed = {"model_type": MODEL_TYPE, "max_position_embeddings": positions}
    return bert.config_fields(weights) | changed


def tokenizer_fields(
    tokenizer: Tokenizer, weights: layout.Weights
) -> tuple[Tokenizer, dict[str, Any], dict[str, str]]:
    """As `bert.tokenizer_fields`; raises UserError if padding has another id."""
    check_padding(tokenizer)
    if "token_classification" in ARCHITECTURES[weights.architecture]:
        tokenizer = byte_level.before_words(tokenizer)
    ids = tokenization.special_ids(tokenizer)._asdict()
    special = {f"{k}_token": tokenizer.id_to_token(i) or "" for k, i in ids.items()}
    special |= {"bos_token": special["cls_token"], "eos_token": special["sep_token"]}
    return tokenizer, {"model_input_names": ["input_ids", "attention_mask"]}, special
