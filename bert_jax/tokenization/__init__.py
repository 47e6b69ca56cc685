"""WordPiece with BERT's normalizer: loads, builds and saves tokenizers.

The rules are those of google-research/bert, tokenization.py, as implemented in the
`tokenizers` library. GPT's vocabularies are those of byte_pairs.py.
"""

import json
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)

from bert_jax.errors import UserError
from bert_jax.runtime import outside, storage
from bert_jax.runtime.storage import Path
from bert_jax.tokenization import byte_pairs, checks, completion

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Longer words become [UNK]: WordpieceTokenizer in tokenization.py.
MAX_CHARACTERS_PER_WORD = 200
# The same limit in `transformers`, when it builds a tokenizer from a vocab.txt.
_TRANSFORMERS_MAX_CHARACTERS = 100
# A vocabulary is cased if lower-casing changes this share of its pieces: bert-base's
# uncased has 0, chinese two pieces (<S>, <T>), multilingual-cased 16%, cased 29%.
_CASED_FROM = 0.01


class SpecialIds(NamedTuple):
    """The ids of the special tokens; GPT's <unk> <unk> _start_ _delimiter_ <unk>."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


def load(
    path: str | Path,
    lowercase: bool = True,
    strip_accents: bool = True,
    special: Sequence[str] = SPECIAL_TOKENS,
) -> Tokenizer:
    """Reads a vocabulary: a `vocab.txt`, a GPT's `vocab.json` with its merges.txt, or a
    `tokenizer.json` (any other .json).

    Args:
      path: a file with one piece per line, whose id is the line number from 0; the
        vocab.json; or a file that `tokenizers` saved, with its own normalizer.
      lowercase: lower the case and, with `strip_accents`, strip accents, as the
        uncased models do. Not used for a tokenizer.json.
      special: the tokens that it must have.

    Raises:
      UserError: the file is missing, not UTF-8 or empty; a piece repeats; a special
        token is missing; the ids are not 0 to pieces - 1.
    """
    path = storage.path(path)
    try:
        storage.require_file(path)
        content = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(
            f"{path}: cannot read the vocabulary ({why}); set tokenizer.vocab_file to "
            "a vocab.txt or tokenizer.json"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{line}: byte {error.start} is not UTF-8; "
            "convert the vocabulary, for instance with iconv"
        ) from error
    if path.name == byte_pairs.VOCABULARY:
        rules = bert_normalizer(lowercase, strip_accents)
        tokenizer = byte_pairs.read(path, content, rules)
    elif path.suffix == ".json":
        tokenizer = _from_json(path, content)
    else:
        tokenizer = build(checks.pieces(path, content), lowercase, strip_accents)
    checks.ids(path, tokenizer)
    for token in () if byte_pairs.is_one(tokenizer) else special:
        if tokenizer.token_to_id(token) is None:
            raise UserError(
                f"{path}: the vocabulary has no {token}; BERT needs "
                f"{' '.join(SPECIAL_TOKENS)}: add it as a line of its own"
            )
    return tokenizer


def of_folder(folder: str | Path) -> Tokenizer | None:
    """The tokenizer beside the weights; None if there is none.

    tokenizer.json comes first, as in `transformers`; tokenizer_config.json overrides
    its case, accents and Chinese characters. Without `do_lower_case`, as in Google's
    releases, a vocab.txt is cased if lower-casing changes its pieces.

    Args:
      folder: a work directory, a Hugging Face folder or one of Google's.

    Raises:
      UserError: see `load`; a file leads out of the folder or is too large.
    """
    folder = storage.path(folder)
    if storage.in_bucket(folder):  # only work directories are read from buckets
        own = folder / "tokenizer.json"
        return load(own) if own.exists() else None
    limit = outside.MAX_VOCABULARY_BYTES
    names = ("tokenizer.json", "vocab.txt", byte_pairs.VOCABULARY)
    paths = (outside.inside(folder, name, limit) for name in names)
    path = next(filter(None, paths), None)
    if path is None:
        return None
    outside.inside(folder, byte_pairs.MERGES, limit)
    fields: dict[str, Any] = {}
    if outside.inside(folder, "tokenizer_config.json") is not None:
        fields = outside.read_json(folder, "tokenizer_config.json")
    tokenizer = load(path)
    if path.suffix != ".json":
        checks.folder(folder, fields, tokenizer)
        fields = {"do_lower_case": not _is_cased(tokenizer), **fields}
        if (folder / "config.json").exists():  # from `transformers`, not Google's code
            characters = _TRANSFORMERS_MAX_CHARACTERS
            # The stubs of `tokenizers` leave this field out.
            tokenizer.model.max_input_chars_per_word = characters  # type: ignore[attr-defined]
    _set_normalizer(tokenizer, fields)
    return tokenizer


def of_config(config: ConfigDict) -> Tokenizer | None:
    """The tokenizer of `config.tokenizer.vocab_file`, or else of `config.init_from`;
    None if both are empty: then one must be trained.

    Raises:
      UserError: see `load` and `of_folder`; `init_from` has none.
    """
    if config.tokenizer.vocab_file:
        given = config.tokenizer
        found = load(given.vocab_file, given.lowercase, given.strip_accents)
        byte_pairs.check(found, config.model.architecture, given.vocab_file)
        return found
    if not config.init_from:
        return None
    from bert_jax.runtime import hub

    folder, _ = storage.numbered(hub.path(config.init_from), "checkpoints")
    tokenizer = of_folder(folder)
    if tokenizer is None:
        raise UserError(
            f"{config.init_from}: no vocab.txt or tokenizer.json beside the weights; "
            "name one with --config.tokenizer.vocab_file"
        )
    byte_pairs.check(tokenizer, config.model.architecture, config.init_from)
    return tokenizer


def required(config: ConfigDict) -> Tokenizer:
    """As `of_config`; raises UserError if the config names none."""
    tokenizer = of_config(config)
    if tokenizer is None:
        raise UserError(
            "config.tokenizer.vocab_file is empty: name a vocab.txt (for GPT a "
            "vocab.json), or start from weights with a vocabulary: --config.init_from"
        )
    return tokenizer


def normalization(tokenizer: Tokenizer) -> dict[str, Any]:
    """The normalizer's settings in comparable form; for BERT's normalizer `lowercase`,
    `strip_accents`, ... with every default filled in."""
    fields = json.loads(tokenizer.to_str())["normalizer"] or {}
    if fields.get("type") == "BertNormalizer" and fields["strip_accents"] is None:
        fields["strip_accents"] = fields["lowercase"]
    return fields


def summary(tokenizer: Tokenizer) -> str:
    """Describes a tokenizer in one line: pieces, case, accents."""
    rules = normalization(tokenizer)
    facts = [f"{tokenizer.get_vocab_size():,} pieces"]
    if rules.get("type") == "BertNormalizer":
        facts.append("uncased" if rules["lowercase"] else "cased")
        facts.append(f"accents {'stripped' if rules['strip_accents'] else 'kept'}")
    else:
        facts.append(f"normalizer {rules.get('type')}")
    return ", ".join(facts)


def files(tokenizer: Tokenizer) -> dict[str, str]:
    """A tokenizer's files: the contents of `vocab.txt` (or those of byte_pairs.py) and
    `tokenizer.json`."""
    if byte_pairs.is_one(tokenizer):
        return byte_pairs.files(tokenizer)
    lines = "".join(f"{piece}\n" for piece in pieces_of(tokenizer))
    return {"vocab.txt": lines, "tokenizer.json": tokenizer.to_str(pretty=True)}


def save(tokenizer: Tokenizer, folder: str | Path) -> None:
    """Writes `files` into an existing folder."""
    for name, text in files(tokenizer).items():
        (storage.path(folder) / name).write_bytes(text.encode("utf-8"))


def special_ids(tokenizer: Tokenizer) -> SpecialIds:
    """The ids of [PAD], [UNK], [CLS], [SEP] and [MASK], or of a GPT's."""
    if byte_pairs.is_one(tokenizer):
        return SpecialIds(*byte_pairs.special_ids(tokenizer))
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    return SpecialIds(*(vocabulary[token] for token in SPECIAL_TOKENS))


def _from_json(path: Path, content: str) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:  # the library raises nothing narrower
        raise UserError(
            f"{path}: not a tokenizer.json ({error}); "
            "save it again with `tokenizers`, or use a vocab.txt"
        ) from error
    # This program truncates and pads by itself.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if byte_pairs.is_one(tokenizer):
        return byte_pairs.complete(tokenizer)
    return completion.complete(tokenizer, SPECIAL_TOKENS)


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    """The vocabulary as a list; a piece's index is its id."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    return sorted(vocabulary, key=lambda piece: vocabulary[piece])


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


def bert_normalizer(
    lowercase: bool, strip_accents: bool = True
) -> normalizers.BertNormalizer:
    """BERT's text normalizer; it strips accents only if it lowers the case."""
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=lowercase and strip_accents,
        lowercase=lowercase,
    )


def word_end(text: str, end: int) -> int:
    """Moves a piece's end past combining accents, which uncased pieces leave out."""
    while end < len(text) and unicodedata.category(text[end]) == "Mn":
        end += 1
    return end


def build(pieces: list[str], lowercase: bool, strip_accents: bool = True) -> Tokenizer:
    """Builds a tokenizer from a vocabulary; a piece's index is its id."""
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.WordPiece(  # type: ignore[call-arg] # missing in the stubs
            vocab=vocabulary,
            unk_token="[UNK]",
            max_input_chars_per_word=MAX_CHARACTERS_PER_WORD,
        )
    )
    tokenizer.normalizer = bert_normalizer(lowercase, strip_accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([t for t in SPECIAL_TOKENS if t in vocabulary])
    completion.add_marks(tokenizer)
    return tokenizer
