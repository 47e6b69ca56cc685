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
_DECODER, _TABLE = "decoder.weight", f"{PREFIX}embeddings.tok_embeddings.weight"
# Fields of config.json, and our names of them; their defaults are those of Base.
_FIELDS = {
    "norm_eps": ("layer_norm_eps", 1e-5),
    "hidden_activation": ("hidden_act", "gelu"),
    "classifier_dropout": ("hidden_dropout_prob", 0.0),
    "attention_dropout": ("attention_probs_dropout_prob", 0.0),
}
_SIZES = {
    "vocab_size": 50368,
    "intermediate_size": 1152,
    "num_hidden_layers": 22,
    "max_position_embeddings": 8192,
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
    config = read_config(fields, folder)
    if architecture == "ModernBertModel":  # has no prefix
        for name in list(tensors.shapes):
            bare = name.removeprefix("bert.")
            if not name.startswith((PREFIX, "head.")):
                tensors.replace(PREFIX + bare, name)
    reading.check_layers(tensors, config)
    if _DECODER in tensors.shapes and not np.array_equal(
        tensors.read(_DECODER), tensors.read(_TABLE)
    ):
        raise UserError(
            f"{tensors.where}: {_DECODER} differs from {_TABLE}, and a ModernBERT's "
            "are the same; such a model cannot be read"
        )
    parts = ARCHITECTURES[architecture]
    expected = [
        parameter
        for part in ("bert", *parts)
        for parameter in parameters(part, config, len(labels))
    ]
    known = {parameter.huggingface for parameter in expected} | {_DECODER}
    return layout.Weights(
        config=config,
        params=reading.build(tensors, config, expected, bert.DIALECT, place),
        architecture=architecture,
        labels=labels if set(parts) & set(layout.LABELLED_HEADS) else (),
        left_over=tuple(sorted(set(tensors.shapes) - known)),
    )


def read_config(fields: Mapping[str, Any], folder: Path) -> BertConfig:
    """The model's sizes; raises UserError if they are wrong or not supported."""
    path = folder / "config.json"
    for name, value in _FIXED.items():
        if (found := fields.get(name, value)) != value:
            raise UserError(
                f"{path}: {name}={untrusted.shown(found)}; a ModernBERT with {value} "
                "can be read"
            )
    ours = {**_SIZES, **fields}
    ours |= {own: fields.get(name, default) for name, (own, default) in _FIELDS.items()}
    if (act := fields.get("classifier_activation", "gelu")) != ours["hidden_act"]:
        raise UserError(
            f"{path}: classifier_activation={untrusted.shown(act)}; one that is "
            "hidden_activation can be read"
        )
    found = bert_config(ours, path, type_vocab_size=1)
    family = FAMILIES[MODEL_TYPE]
    config = dataclasses.replace(
        found,
        architecture=MODEL_TYPE,
        layer=MODEL_TYPE,
        positions=MODEL_TYPE,
        type_vocab_size=1,
        causal=False,
        own=tuple(_own(fields, path, family.model_fields).items()),
    )
    try:
        family.check(config)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return config


def _own(
    fields: Mapping[str, Any], path: Path, defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of `Family.model_fields` that a config.json says, or their defaults.

    Raises:
      UserError: one is wrong, or not supported.
    """
    found = {name: fields.get(name, value) for name, value in defaults.items()}
    rope = fields.get("rope_parameters") or {}
    for ours, theirs in _KINDS.items():
        given = rope.get(theirs) if isinstance(rope, dict) else None
        if given is None:
            continue
        if (
            not isinstance(given, dict)
            or given.get("rope_type", "default") != "default"
        ):
            raise UserError(
                f"{path}: rope_parameters {theirs}={untrusted.shown(given)}; the "
                "rope_type default can be read"
            )
        name = f"{ours}_rope_theta"
        found[name] = given.get("rope_theta", found[name])
    if (kinds := fields.get("layer_types")) is not None:
        found["global_attn_every_n_layers"] = _every(kinds, path)
    for name, value in found.items():
        if type(value) is int and isinstance(defaults[name], float):
            found[name] = value = float(value)
        wrong = type(value) is not type(defaults[name])
        if fault := "has the wrong type" if wrong else RULES[f"model.{name}"](value):
            raise UserError(f"{path}: {name}={untrusted.shown(value)}: {fault}")
    return found


def _every(kinds: Any, path: Path) -> int:
    """Of `layer_types`: every how many layers one is global, from the first."""
    globals_ = [i for i, kind in enumerate(kinds) if kind == _KINDS["global"]]
    every = globals_[1] if len(globals_) > 1 else len(kinds)
    if kinds != [_KINDS["local" if i % every else "global"] for i in range(len(kinds))]:
        raise UserError(
            f"{path}: layer_types={untrusted.shown(kinds)}; layers that are "
            "full_attention at even distances, from the first, can be read"
        )
    return every


def tensors_of(weights: layout.Weights) -> dict[str, layout.Array]:
    """The tensors of model.safetensors."""
    pieces: dict[str, dict[tuple[str, ...], layout.Array]] = {}
    for part in ("bert", *ARCHITECTURES[weights.architecture]):
        for parameter in parameters(part, weights.config, len(weights.labels)):
            value = np.asarray(parameter.of(weights.params))
            given = parameter.give(value, bert.DIALECT)
            pieces.setdefault(parameter.huggingface, {})[parameter.path] = given
    found = {name: np.concatenate(list(own.values())) for name, own in pieces.items()}
    if weights.architecture == "ModernBertModel":
        return {name.removeprefix(PREFIX): value for name, value in found.items()}
    return found


def config_fields(weights: layout.Weights) -> dict[str, Any]:
    """The model's fields of config.json, without its labels."""
    config = weights.config
    own, every = dict(config.own), config.field("global_attn_every_n_layers")
    sizes = (*_SIZES, "hidden_size", "num_attention_heads", "initializer_range")
    acts = {"gelu_tanh": "gelu_pytorch_tanh"}
    act = acts.get(config.hidden_act, config.hidden_act)
    layers = range(config.num_hidden_layers)
    return {
        "architectures": [weights.architecture],
        "model_type": MODEL_TYPE,
        **{name: getattr(config, name) for name in sizes},
        **{theirs: getattr(config, ours) for theirs, (ours, _) in _FIELDS.items()},
        **_FIXED,
        **own,
        "hidden_activation": act,
        "classifier_activation": act,
        "layer_types": [_KINDS["local" if i % every else "global"] for i in layers],
        "rope_parameters": {
            theirs: {"rope_type": "default", "rope_theta": own[f"{ours}_rope_theta"]}
            for ours, theirs in _KINDS.items()
        },
    }


def tokenizer_fields(
    tokenizer: Tokenizer, weights: layout.Weights
) -> tuple[Tokenizer, dict[str, Any], dict[str, str]]:
    """As `bert.tokenizer_fields`."""
    del weights
    ids = tokenization.special_ids(tokenizer)._asdict()
    special = {f"{k}_token": tokenizer.id_to_token(i) or "" for k, i in ids.items()}
    return tokenizer, {"model_input_names": ["input_ids", "attention_mask"]}, special
