"""ModernBERT in Hugging Face's form: reads and writes tensors and config.json."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.convert import bert, layout, reading
from bert_jax.convert.config import bert_config
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig
from bert_jax.runtime import untrusted
from bert_jax.tokenization import byte_level
from families.modernbert.fields import RULES
from families.modernbert.layout import ARCHITECTURES, PREFIX, parameters

MODEL_TYPE = "modernbert"
PIPELINES = {
    "ModernBertModel": "feature-extraction",
    "ModernBertForMaskedLM": "fill-mask",
    "ModernBertForSequenceClassification": "text-classification",
    "ModernBertForTokenClassification": "token-classification",
    "ModernBertForQuestionAnswering": "question-answering",
    "ModernBertForMultipleChoice": "multiple-choice",
}
BUFFER = re.compile(r".*\.rotary_emb\.inv_freq")  # which old versions saved
_TIED = {"decoder.weight": f"{PREFIX}embeddings.tok_embeddings.weight"}
# Base's values of config.json's fields, and our names where they differ.
_SIZES = {
    "vocab_size": 50368,
    "intermediate_size": 1152,
    "num_hidden_layers": 22,
    "max_position_embeddings": 8192,
}
_NAMES = {
    "norm_eps": ("layer_norm_eps", 1e-5),
    "hidden_activation": ("hidden_act", "gelu"),
    "classifier_dropout": ("hidden_dropout_prob", 0.0),
    "attention_dropout": ("attention_probs_dropout_prob", 0.0),
}
# What no model here has otherwise.
_FIXED = {
    "norm_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "decoder_bias": True,
    "classifier_bias": False,
    "tie_word_embeddings": True,
}
_KINDS = {"global": "full_attention", "local": "sliding_attention"}


def read(
    tensors: reading.Files,
    fields: Mapping[str, Any],
    folder: Path,
    labels: tuple[str, ...],
    place: Callable[[layout.Array], Any],
) -> layout.Weights:
    """Reads a ModernBERT that `transformers` saved, as float32; see `bert.read`.

    Raises:
      UserError: a tensor is missing or damaged, or the model is of another kind.
    """
    path = folder / "config.json"
    architecture = bert.named(fields, path, ARCHITECTURES, "ModernBertModel")
    config, parts = read_config(fields, folder), ARCHITECTURES[architecture]
    for name in list(tensors.shapes) if not parts else ():  # it has no prefix
        tensors.replace(PREFIX + name.removeprefix("bert."), name)
    reading.check_layers(tensors, config)
    known = bert.check_tied(
        tensors, _TIED, "a ModernBERT's are the same; such a model cannot be read"
    )
    return bert.weights_of(
        tensors, config, architecture, parts, parameters, labels, known, place
    )


def read_config(fields: Mapping[str, Any], folder: Path) -> BertConfig:
    """The model's sizes; raises UserError if they are wrong or not supported."""
    path, family = folder / "config.json", FAMILIES[MODEL_TYPE]
    act = fields.get("hidden_activation", "gelu")
    for name, value in (*_FIXED.items(), ("classifier_activation", act)):
        if (read := fields.get(name, value)) != value:
            raise _unread(path, name, read, f"that is {value}")
    renamed = {name: fields.get(key, value) for key, (name, value) in _NAMES.items()}
    config = dataclasses.replace(
        bert_config({**_SIZES, **fields, **renamed}, path, type_vocab_size=1),
        architecture=MODEL_TYPE,
        layer=MODEL_TYPE,
        positions=MODEL_TYPE,
        type_vocab_size=1,
        family_fields=tuple(_family_fields(fields, path, family.model_fields).items()),
    )
    try:
        family.check(config)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return config


def _family_fields(
    fields: Mapping[str, Any], path: Path, defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """`Family.model_fields` as a config.json says, in either of its two forms."""
    values = {name: fields.get(name, value) for name, value in defaults.items()}
    rope, layers = fields.get("rope_parameters") or {}, fields.get("layer_types")
    for reach, layer_type in _KINDS.items():
        angles = rope.get(layer_type, {}) if isinstance(rope, dict) else rope
        kind = angles.get("rope_type", "default") if isinstance(angles, dict) else None
        if kind != "default":
            raise _unread(path, "rope_parameters", rope, "of the rope_type default")
        theta = f"{reach}_rope_theta"
        values[theta] = angles.get("rope_theta", values[theta])
    if isinstance(layers, list) and layers:
        at = [index for index, kind in enumerate(layers) if kind == _KINDS["global"]]
        # With one global layer, the list alone only says that no other fits.
        every, most = values["global_attn_every_n_layers"], len(layers)
        most = max(most, every) if type(every) is int else most
        values["global_attn_every_n_layers"] = every = (*at, most, most)[1]
        if layers != _layer_types(len(layers), every):
            raise _unread(path, "layer_types", layers, "with a global layer every few")
    for name, value in values.items():
        if type(value) is int and isinstance(defaults[name], float):
            values[name] = value = float(value)
        wrong = type(value) is not type(defaults[name])
        if fault := "has the wrong type" if wrong else RULES[f"model.{name}"](value):
            raise UserError(f"{path}: {name}={untrusted.shown(value)}: {fault}")
    return values


def _unread(path: Path, name: str, value: Any, kind: str) -> UserError:
    what = f"{path}: {name}={untrusted.shown(value)}"
    return UserError(f"{what}; only one {kind} is read")


def _layer_types(count: int, every: int) -> list[str]:
    return [_KINDS["local" if index % every else "global"] for index in range(count)]


def tensors_of(weights: layout.Weights) -> dict[str, layout.Array]:
    """The tensors of model.safetensors."""
    heads, pieces = ARCHITECTURES[weights.architecture], dict[str, list[layout.Array]]()
    for part in ("bert", *heads):
        for parameter in parameters(part, weights.config, len(weights.labels)):
            array = parameter.give(parameter.of(weights.params), bert.DIALECT)
            pieces.setdefault(parameter.huggingface, []).append(array)
    whole = {name: np.concatenate(arrays) for name, arrays in pieces.items()}
    return whole if heads else {n.removeprefix(PREFIX): v for n, v in whole.items()}


def config_fields(weights: layout.Weights) -> dict[str, Any]:
    """The model's fields of config.json, without its labels."""
    config, family = weights.config, dict(weights.config.family_fields)
    act = {"gelu_tanh": "gelu_pytorch_tanh"}.get(config.hidden_act, config.hidden_act)
    sizes = (*_SIZES, "hidden_size", "num_attention_heads", "initializer_range")
    every, layers = family["global_attn_every_n_layers"], config.num_hidden_layers
    return {
        "architectures": [weights.architecture],
        "model_type": MODEL_TYPE,
        **{name: getattr(config, name) for name in sizes},
        **{key: getattr(config, name) for key, (name, _) in _NAMES.items()},
        **_FIXED,
        **family,
        **dict.fromkeys(("hidden_activation", "classifier_activation"), act),
        "layer_types": _layer_types(layers, every),
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": family[f"{reach}_rope_theta"]}
            for reach, kind in _KINDS.items()
        },
    }


def tokenizer_fields(
    tokenizer: Tokenizer, weights: layout.Weights
) -> tuple[Tokenizer, dict[str, Any], dict[str, str]]:
    """As `bert.tokenizer_fields`."""
    ids = tokenization.special_ids(tokenizer)._asdict()
    if "token_classification" in ARCHITECTURES[weights.architecture]:
        tokenizer = byte_level.before_words(tokenizer)
    special = {f"{k}_token": tokenizer.id_to_token(i) or "" for k, i in ids.items()}
    return tokenizer, {"model_input_names": ["input_ids", "attention_mask"]}, special
