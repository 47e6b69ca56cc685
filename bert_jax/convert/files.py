"""Reading what somebody else made: nothing outside its folder, nothing enormous."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers

from bert_jax import tokenization
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig

# A config of a thousand labels has some 50 kB; an index of a thousand layers 2 MB.
MAX_JSON_BYTES = 5_000_000
# A tokenizer.json of 120,000 pieces has 3 MB.
MAX_VOCABULARY_BYTES = 50_000_000


def inside(folder: Path, name: str, limit: int | None = None) -> Path | None:
    """A regular file of the folder; None where there is none of that name.

    Args:
      limit: the largest size, in bytes, that it may have.

    Raises:
      UserError: it lies elsewhere, is no regular file, or too large.
    """
    path = folder / name
    if not path.is_symlink() and not path.exists():
        return None
    real = path.resolve()
    if not real.is_relative_to(folder.resolve()):
        raise UserError(
            f"{path} leads out of its folder, to {real}; copy the file itself there"
        )
    if not real.is_file():
        raise UserError(f"{path}: not a file")
    size = real.stat().st_size
    if limit is not None and size > limit:
        raise UserError(f"{path}: {size:,} bytes; no such file has more than {limit:,}")
    return path


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """An object from a JSON file.

    Raises:
      UserError: there is no such file, or it holds no object.
    """
    path = inside(folder, name, MAX_JSON_BYTES)
    if path is None:
        raise UserError(f"{folder}: no {name} there")
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        text = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: cannot be read as JSON: {text}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: an object is wanted, not a {type(value).__name__}")
    return value


def shown(value: Any) -> str:
    """A value from a file, for an error: short, and one line."""
    return repr(value)[:80]


# The constructors' defaults, for fields that a file leaves out: BertConfig in
# modeling.py and in `transformers`, which differ in type_vocab_size only.
_INTEGERS = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}
_NUMBERS = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
# What a config here and theirs have in common, beside the activation.
FIELDS = (*_INTEGERS, "type_vocab_size", *_NUMBERS)
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def bert_config(fields: dict[str, Any], path: Path, type_vocab_size: int) -> BertConfig:
    """The config of config.json or bert_config.json, whose names are the same.

    Args:
      type_vocab_size: what the field is where it is left out.

    Raises:
      UserError: a value of another type, or one that no model here can have.
    """
    values: dict[str, Any] = {}
    integers = {**_INTEGERS, "type_vocab_size": type_vocab_size}
    for name, default in (integers | _NUMBERS).items():
        value = fields.get(name, default)
        kind = int if name in integers else (int, float)
        # A billion is more than any size here, and fits a float.
        if (
            isinstance(value, bool)
            or not isinstance(value, kind)
            or not 0 <= value <= 1e9
        ):
            raise UserError(f"{path}: {name}={shown(value)} is not a number for it")
        values[name] = value if name in integers else float(value)
    act = fields.get("hidden_act", "gelu")
    if not isinstance(act, str) or act not in _ACTIVATIONS:
        raise UserError(
            f"{path}: hidden_act={shown(act)}; models here have "
            f"{', '.join(_ACTIVATIONS)}"
        )
    values |= {"hidden_act": _ACTIVATIONS[act], "dtype": "float32"}
    values |= {"attention": "einsum", "remat": "none", "scan_layers": False}
    try:
        return BertConfig.create(values, values["vocab_size"])
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def read_tokenizer(
    folder: Path, config: BertConfig | None, fields: dict[str, Any]
) -> Tokenizer | None:
    """The tokenizer of `tokenizer.json` or `vocab.txt`; None where there is neither.

    Args:
      config: the model's, if the sizes are to be compared.
      fields: of tokenizer_config.json, which decides over a tokenizer.json as it does
        in `transformers`. Where it does not say `do_lower_case`, a vocab.txt with
        capital letters is a cased one.

    Raises:
      UserError: see `tokenization.load`; or it has more or fewer pieces than the model
        has embeddings.
    """
    found = None
    for name in ("vocab.txt", "tokenizer.json"):
        path = inside(folder, name, MAX_VOCABULARY_BYTES)
        if path is None:
            continue
        found = tokenization.load(path)
        pieces = found.get_vocab(with_added_tokens=True)
        if config is not None and len(pieces) != config.vocab_size:
            raise UserError(
                f"{path}: {len(pieces)} pieces, but the model's vocab_size is "
                f"{config.vocab_size}; where the model has spare rows, fill the "
                "vocabulary up with lines [unused0], [unused1], ..."
            )
        lowercase = fields.get("do_lower_case")
        if name == "vocab.txt" and lowercase is None:
            lowercase = not any(piece.isupper() for piece in pieces if len(piece) == 1)
        _set_case(found, {**fields, "do_lower_case": lowercase})
    return found


def _set_case(tokenizer: Tokenizer, fields: dict[str, Any]) -> None:
    normalizer = tokenizer.normalizer
    if not isinstance(normalizer, normalizers.BertNormalizer):
        return
    lowercase = fields["do_lower_case"]
    if isinstance(lowercase, bool) and lowercase != normalizer.lowercase:
        normalizer.lowercase = lowercase
        normalizer.strip_accents = None  # as the case
    if isinstance(accents := fields.get("strip_accents"), bool):
        normalizer.strip_accents = accents
    if isinstance(chinese := fields.get("tokenize_chinese_chars"), bool):
        normalizer.handle_chinese_chars = chinese
    tokenizer.normalizer = normalizer
