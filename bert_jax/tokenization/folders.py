"""The tokenizer of a folder of weights."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer, normalizers

from bert_jax import tokenization
from bert_jax.errors import UserError
from bert_jax.runtime import storage, untrusted
from bert_jax.runtime.storage import Path
from bert_jax.tokenization.wordpiece import SPECIAL_TOKENS, WORDPIECE, pieces_of

# The same limit in `transformers`, when it builds a tokenizer from a vocab.txt.
_TRANSFORMERS_MAX_CHARACTERS = 100
# A vocabulary is cased if lower-casing changes this share of its pieces: bert-base's
# uncased has 0, chinese two pieces (<S>, <T>), multilingual-cased 16%, cased 29%.
_CASED_FROM = 0.01
# Classes of `transformers` that cut texts as BERT does, given a vocab.txt.
_CLASSES = re.compile(
    "((Bert|DistilBert|Electra)Tokenizer|PreTrainedTokenizer)(Fast)?|TokenizersBackend"
)
# SHA-256 of the pieces of Google's vocabularies (uncased, cased, multilingual cased,
# chinese), to which others have added rows, as NVIDIA's 30,528 for 30,522.
_RELEASED = (
    "0f052197aac305fe42f378b5c61554b7bacb34b8be4af83fec2cfdcdffbc9973",
    "9dd1dce5943e4cdda015102aa80afbf7df7b09cb6902ea212276a853acae9789",
    "7974e1090ba19a88b6e456195d4aa7f9f13ea8d4876b0a362c425a2444708f5a",
    "8550a78ca2dd304e6a4b45baa9780db8a93cfacc564b4d1c319905db0122f1e4",
)
_SAVE = "open it with `transformers` and save it as a tokenizer.json"


def tokenizer(folder: Path) -> Tokenizer | None:
    """See `tokenization.of_folder`."""
    if storage.in_bucket(folder):  # only work directories are read from buckets
        saved = folder / "tokenizer.json"
        return tokenization.load(saved) if saved.exists() else None
    path = _beside(folder)
    if path is None:
        return None
    fields = _optional(folder, "tokenizer_config.json")
    tokenizer = tokenization.load(path)
    if path.suffix != ".json":
        _check(folder, fields, tokenizer)
        fields = {"do_lower_case": not _is_cased(tokenizer), **fields}
        if (folder / "config.json").exists():  # from `transformers`, not Google's code
            characters = _TRANSFORMERS_MAX_CHARACTERS
            # The stubs of `tokenizers` leave this field out.
            tokenizer.model.max_input_chars_per_word = characters  # type: ignore[attr-defined]
    _set_normalizer(tokenizer, fields)
    return tokenizer


def lacks_none(folder: Path, tokenizer: Tokenizer) -> bool:
    """Whether the ids of a folder's pieces are certain: in a vocab.txt they are the
    numbers of its lines, and one may be missing."""
    path = None if storage.in_bucket(folder) else _beside(folder)
    if path is None or path.name not in WORDPIECE.files:
        return True
    pieces = "\n".join(pieces_of(tokenizer))
    return hashlib.sha256(pieces.encode()).hexdigest() in _RELEASED


def _beside(folder: Path) -> Path | None:
    """A folder's tokenizer.json, or else its vocabulary."""
    kinds = (WORDPIECE, *tokenization.others())
    names = ("tokenizer.json", *(kind.files[0] for kind in kinds))
    return next((folder / x for x in names if (folder / x).is_file()), None)


def _check(path: Path, fields: Mapping[str, Any], tokenizer: Tokenizer) -> None:
    """Checks that a folder's vocab.txt is all that `transformers` cuts texts by.

    Args:
      path: the folder.
      fields: its tokenizer_config.json.

    Raises:
      UserError: another program cuts the texts; there are tokens besides its pieces.
    """
    where = path / "tokenizer_config.json"
    named = fields.get("tokenizer_class")
    if isinstance(named, str) and not _CLASSES.fullmatch(named):
        raise UserError(
            f"{where}: tokenizer_class={untrusted.shown(named)} cuts texts by rules of "
            f"its own, which a vocab.txt does not have; {_SAVE}, if it can"
        )
    decoder = fields.get("added_tokens_decoder") or {}
    added = [token["content"] for token in decoder.values()]
    for token in [*added, *_optional(path, "added_tokens.json")]:
        if tokenizer.token_to_id(token) is None:
            raise UserError(
                f"{path}: {untrusted.shown(token)} is added to the pieces of vocab.txt"
                f"; such tokens are read from a tokenizer.json: {_SAVE}"
            )


def _optional(folder: Path, name: str) -> dict[str, Any]:
    """The fields of a file; none if it is missing."""
    return untrusted.read_json(folder, name) if (folder / name).is_file() else {}


def _is_cased(tokenizer: Tokenizer) -> bool:
    pieces = set(pieces_of(tokenizer)) - set(SPECIAL_TOKENS)
    words = [p for p in pieces if not p.startswith("[unused")]
    changed = sum(piece.lower() != piece for piece in words)
    return changed > _CASED_FROM * len(words)


def _set_normalizer(tokenizer: Tokenizer, fields: dict[str, Any]) -> None:
    """Applies tokenizer_config.json to BERT's normalizer; keeps any other as it is."""
    normalizer = tokenizer.normalizer
    if not isinstance(normalizer, normalizers.BertNormalizer):
        return
    lowercase = fields.get("do_lower_case")
    if isinstance(lowercase, bool) and lowercase != normalizer.lowercase:
        normalizer.lowercase = lowercase
        normalizer.strip_accents = None  # follows the case
    if isinstance(accents := fields.get("strip_accents"), bool):
        normalizer.strip_accents = accents
    if isinstance(chinese := fields.get("tokenize_chinese_chars"), bool):
        normalizer.handle_chinese_chars = chinese
    tokenizer.normalizer = normalizer
