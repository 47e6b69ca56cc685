"""OpenAI's GPT in Hugging Face's form: reads and writes tensors and config.json."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.convert import layout, reading
from bert_jax.convert.bert import DIALECT, named
from bert_jax.convert.config import bert_config
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig
from bert_jax.runtime import untrusted
from families.gpt import vocabulary as byte_pairs
from families.gpt.layout import ARCHITECTURES, PREFIX, TABLE, parameters

MODEL_TYPE = "openai-gpt"
PIPELINES = {
    "OpenAIGPTModel": "feature-extraction",
    "OpenAIGPTLMHeadModel": "text-generation",
    "OpenAIGPTForSequenceClassification": "text-classification",
    "OpenAIGPTDoubleHeadsModel": "multiple-choice",
}
HEAD = "lm_head.weight"  # the language model's matrix, which is the embeddings
# The causal mask, which old versions saved in every layer.
BUFFER = re.compile(r"(transformer\.)?h\.\d+\.attn\.bias")

_LAYER = re.compile(rf"{re.escape(PREFIX)}h\.(\d{{1,9}})")
_ACTIVATIONS = {"gelu": "gelu_tanh", "gelu_new": "gelu_tanh", "relu": "relu"}
# Of the rows that a vocabulary's special tokens add: always the same ones.
_SEED = 0
# Fields of config.json with another name than ours, and their defaults there.
_FIELDS = {
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


class _Named:
    """Another source's tensors under the names of `parameters`, the embeddings with
    rows for the special tokens."""

    def __init__(self, source: reading.Source, added: int, spread: float):
        self.where, self._source = source.where, source
        self._added, self._spread = added, spread
        bare = not any(name.startswith(PREFIX) for name in source.shapes)
        heads = ("lm_head.", "score.", "multiple_choice_head.")
        self._saved_names = {
            f"{PREFIX}{name}" if bare and not name.startswith(heads) else name: name
            for name in source.shapes
        }
        # Of the two, `transformers` saves a double-heads model's lm_head alone.
        if TABLE not in self._saved_names and HEAD in self._saved_names:
            self._saved_names[TABLE] = self._saved_names.pop(HEAD)
        self.shapes = {ours: source.shapes[n] for ours, n in self._saved_names.items()}
        if len(shape := self.shapes.get(TABLE, ())) == 2:
            self.shapes[TABLE] = (shape[0] + added, shape[1])

    def read(self, name: str) -> layout.Array:
        array = self._source.read(self._saved_names[name])
        if name != TABLE or not self._added:
            return array
        shape = (self._added, array.shape[1])
        drawn = np.random.default_rng(_SEED).normal(0.0, self._spread, shape)
        return np.concatenate([array, drawn.astype(np.float32)])


def read(
    source: reading.Source,
    fields: Mapping[str, Any],
    folder: Path,
    labels: tuple[str, ...],
    place: Callable[[layout.Array], Any],
) -> layout.Weights:
    """Reads a GPT that `transformers` saved, as float32; arguments as in `bert.read`.

    For special tokens that the vocabulary has and the embeddings have not, rows are
    drawn from a normal distribution of `initializer_range`, always alike.

    Args:
      source: its tensors.
      fields: its config.json.
      folder: its folder.
      labels: the names of a classifier's outputs.
      place: see `reading.build`.

    Raises:
      UserError: a tensor is missing or damaged, or the model is of another kind.
    """
    path, default = folder / "config.json", "OpenAIGPTLMHeadModel"
    architecture = named(fields, path, ARCHITECTURES, default)
    config = read_config(fields, folder)
    added = config.vocab_size - fields.get("vocab_size", _FIELDS["vocab_size"][1])
    tensors = _Named(source, added, config.initializer_range)
    matches = [_LAYER.match(name) for name in tensors.shapes]
    count = 1 + max((int(n[1]) for n in matches if n is not None), default=-1)
    if count != config.num_hidden_layers:
        raise UserError(
            f"{tensors.where}: has {count} layers, but config.json has "
            f"n_layer={config.num_hidden_layers}"
        )
    _check_tied(tensors)
    heads = ARCHITECTURES[architecture]
    expected = [
        parameter
        for part in ("bert", *heads)
        for parameter in parameters(part, config, len(labels))
        if parameter.huggingface
    ]
    params = reading.build(tensors, config, expected, DIALECT, place)
    if "sequence_classification" in heads:
        bias = np.zeros(len(labels), np.float32)
        params["sequence_classification"]["bias"] = place(bias)
    known = {parameter.huggingface for parameter in expected} | {HEAD}
    return layout.Weights(
        config=config,
        params=params,
        architecture=architecture,
        labels=labels if "sequence_classification" in heads else (),
        left_over=tuple(sorted(set(tensors.shapes) - known)),
    )


def _added(fields: Mapping[str, Any], folder: Path) -> int:
    """How many of GPT's special tokens the vocabulary has and the embeddings have not:
    three in the released folder, none in an export of ours.

    Raises:
      UserError: the vocabulary is damaged.
    """
    tokenizer = tokenization.of_folder(folder)
    rows = fields.get("vocab_size", _FIELDS["vocab_size"][1])
    if tokenizer is None or not isinstance(rows, int):
        return 0
    more = tokenizer.get_vocab_size() - rows
    return more if 0 < more <= len(byte_pairs.SPECIAL_TOKENS) else 0


def read_config(fields: Mapping[str, Any], folder: Path) -> BertConfig:
    """The model's sizes, with rows for the special tokens of the vocabulary beside.

    Raises:
      UserError: one is wrong or not supported.
    """
    path, added = folder / "config.json", _added(fields, folder)
    ours = {
        name: fields.get(saved_name, default)
        for name, (saved_name, default) in _FIELDS.items()
    }
    act = fields.get("afn", "gelu")
    if not isinstance(act, str) or act not in _ACTIVATIONS:
        raise UserError(
            f"{path}: afn={untrusted.shown(act)}; supported are "
            f"{', '.join(_ACTIVATIONS)}"
        )
    size, rows = ours["hidden_size"], ours["vocab_size"]
    ours["intermediate_size"] = 4 * size if isinstance(size, int) else size
    ours["vocab_size"] = rows + added if isinstance(rows, int) else rows
    ours |= {"type_vocab_size": 1, "is_decoder": True}
    ours["hidden_act"] = {"gelu_tanh": "gelu_new"}.get(
        _ACTIVATIONS[act], _ACTIVATIONS[act]
    )
    config = bert_config(ours, path, type_vocab_size=1)
    return dataclasses.replace(config, architecture="gpt")


def _check_tied(tensors: _Named) -> None:
    """Raises UserError if the language model's matrix is not the embeddings'."""
    if HEAD not in tensors.shapes or TABLE not in tensors.shapes:
        return
    matrix = np.atleast_1d(tensors.read(HEAD))
    if not np.array_equal(matrix, tensors.read(TABLE)[: len(matrix)]):
        raise UserError(
            f"{tensors.where}: {HEAD} differs from {TABLE}, and GPT's are the same "
            "matrix; such a model cannot be read"
        )


def tensors_of(weights: layout.Weights) -> dict[str, layout.Array]:
    """The tensors of model.safetensors.

    `transformers`' classifier has no bias. Ours goes into the last LayerNorm's, by the
    smallest change that gives the same logits.
    """
    config, heads = weights.config, ARCHITECTURES[weights.architecture]
    params = weights.params
    if "sequence_classification" in heads:
        params = _without_bias(params, config.num_hidden_layers - 1)
    pieces: dict[str, list[layout.Array]] = {}
    for part in ("bert", *heads):
        for parameter in parameters(part, config, len(weights.labels)):
            if not parameter.huggingface:
                continue
            value = np.asarray(parameter.of(params))
            array = parameter.give(value, DIALECT)
            pieces.setdefault(parameter.huggingface, []).append(array)
    tensors = {name: np.concatenate(parts, -1) for name, parts in pieces.items()}
    if weights.architecture == "OpenAIGPTModel":
        return {name.removeprefix(PREFIX): value for name, value in tensors.items()}
    return tensors


def _without_bias(params: Mapping[str, Any], last: int) -> dict[str, Any]:
    """The same classifier, its bias moved into the last layer's output."""
    head = params["sequence_classification"]
    kernel = np.asarray(head["kernel"], np.float64)  # [hidden, labels]
    bias = np.asarray(head["bias"], np.float64)
    moved, *_ = np.linalg.lstsq(kernel.T, bias, rcond=None)
    if not np.allclose(kernel.T @ moved, bias, atol=1e-6):
        raise UserError(
            "the classifier's bias cannot be moved into the last LayerNorm, whose "
            f"{len(kernel)} numbers do not determine {len(bias)} outputs; Hugging "
            "Face's classifier has no bias, so it cannot be exported"
        )
    bert = params["bert"]
    layer = bert["encoder"][f"layer_{last}"]
    norm = layer["layer_norm"]
    norm = {**norm, "bias": (norm["bias"] + moved).astype(np.float32)}
    encoder = {**bert["encoder"], f"layer_{last}": {**layer, "layer_norm": norm}}
    return {**params, "bert": {**bert, "encoder": encoder}}


def config_fields(weights: layout.Weights) -> dict[str, Any]:
    """The model's fields of config.json, without its labels.

    Raises:
      UserError: Hugging Face's GPT has no such activation or sizes.
    """
    config = weights.config
    acts = {"gelu_tanh": "gelu", "relu": "relu"}
    if config.hidden_act not in acts:
        raise UserError(
            f"config.model.hidden_act={config.hidden_act}: Hugging Face's GPT has "
            f"{', '.join(acts)} only, so it cannot be exported"
        )
    if config.intermediate_size != 4 * config.hidden_size:
        raise UserError(
            f"config.model.intermediate_size={config.intermediate_size}: in Hugging "
            "Face's GPT it is 4 x hidden_size, so it cannot be exported"
        )
    return {
        "architectures": [weights.architecture],
        "model_type": MODEL_TYPE,
        **{
            saved_name: getattr(config, ours)
            for ours, (saved_name, _) in _FIELDS.items()
        },
        "embd_pdrop": config.hidden_dropout_prob,
        "summary_first_dropout": config.hidden_dropout_prob,
        "afn": acts[config.hidden_act],
        "tie_word_embeddings": True,
    }


def tokenizer_fields(
    tokenizer: Tokenizer, weights: layout.Weights
) -> tuple[Tokenizer, dict[str, Any], dict[str, str]]:
    """As `bert.tokenizer_fields`."""
    # A language model goes on where the text ends; a classifier reads `_classify_`.
    if not ARCHITECTURES[weights.architecture]:
        tokenizer = byte_pairs.bare(tokenizer)
    fields = {
        "model_input_names": ["input_ids", "attention_mask"],
        # A special token's name in a text is text, as it is when we read one.
        "split_special_tokens": True,
    }
    return tokenizer, fields, byte_pairs.NAMES
