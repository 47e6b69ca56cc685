"""Loading, description and saving of tokenizers of every kind of vocabulary.

The rules are those of google-research/bert, tokenization.py, as implemented in the
`tokenizers` library. A model family may have vocabularies of another kind.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from bert_jax.errors import UserError, first_line
from bert_jax.family import FAMILIES
from bert_jax.runtime import hub, storage, untrusted
from bert_jax.runtime.storage import Path
from bert_jax.tokenization.tokenizer_json import (
    CHARACTER_BPE,
    OTHER_WORDPIECE,
    UNIGRAM,
)
from bert_jax.tokenization.wordpiece import (
    NORMALIZER_FIELDS,
    WORDPIECE,
    VocabularyType,
)
from bert_jax.tokenization.wordpiece import SPECIAL_TOKENS as SPECIAL_TOKENS
from bert_jax.tokenization.wordpiece import SpecialIds as SpecialIds
from bert_jax.tokenization.wordpiece import bert_normalizer as bert_normalizer
from bert_jax.tokenization.wordpiece import build_tokenizer as build_tokenizer
from bert_jax.tokenization.wordpiece import custom_special_ids as custom_special_ids
from bert_jax.tokenization.wordpiece import fill_ids as fill_ids
from bert_jax.tokenization.wordpiece import tokens_by_id as tokens_by_id

# The same limit in `transformers`, when it builds a tokenizer from a vocab.txt.
_TRANSFORMERS_MAX_CHARACTERS = 100
# A vocabulary is cased if lower-casing changes this fraction of its tokens: bert-base's
# uncased has 0, chinese two tokens (<S>, <T>), multilingual-cased 16%, cased 29%.
_CASED_FROM = 0.01
# Classes of `transformers` that cut texts as BERT does, given a vocab.txt.
_CLASSES = re.compile(
    "((Bert|DistilBert|Electra)Tokenizer|PreTrainedTokenizer)(Fast)?|TokenizersBackend"
)
# Classes that take a tokenizer.json as it is. The others build their own from it, by
# tokenizer_config.json.
_AS_SAVED = ("PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend")
# Names of SentencePiece's models in folders of `transformers`.
_SENTENCEPIECE = (
    *("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model"),
)
# SHA-256 of the tokens of Google's vocabularies (uncased, cased, multilingual cased,
# chinese), to which others have added rows, as NVIDIA's 30,528 for 30,522.
_RELEASED = {
    "0f052197aac305fe42f378b5c61554b7bacb34b8be4af83fec2cfdcdffbc9973",
    "9dd1dce5943e4cdda015102aa80afbf7df7b09cb6902ea212276a853acae9789",
    "7974e1090ba19a88b6e456195d4aa7f9f13ea8d4876b0a362c425a2444708f5a",
    "8550a78ca2dd304e6a4b45baa9780db8a93cfacc564b4d1c319905db0122f1e4",
}
# Fraction of [UNK] from which a text is warned of. In English bert-base-uncased has
# about 0.0001.
MANY_UNKNOWN = 0.02


def load(
    path: str | Path,
    lowercase: bool = True,
    strip_accents: bool = True,
    whole: bool = True,
) -> Tokenizer:
    """Reads a vocabulary: a `vocab.txt`, the file of another kind by its name, or a
    `tokenizer.json` (any other .json).

    Args:
      path: A file with one token per line, whose id is the line number from 0, a file
        of another kind, or one that `tokenizers` saved, with its normalizer.
      lowercase: Whether to lower the case and, with `strip_accents`, strip accents, as
        the uncased models do. Not used for a tokenizer.json, nor for byte-level BPE.
      whole: Whether it must have the special tokens that a model needs.

    Raises:
      UserError: the file is missing, not UTF-8 or empty, a special token is missing,
        or two tokens have one id.
    """
    path = storage.storage_path(path)
    try:
        content = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: cannot read the vocabulary ({first_line(error)}); set "
            "tokenizer.vocab_file to a vocab.txt or tokenizer.json in UTF-8"
        ) from error
    named: list[VocabularyType] = []
    if path.name not in ("tokenizer.json", *WORDPIECE.files):
        named = [kind for kind in other_kinds() if kind.files[0] == path.name]
    if path.suffix == ".json" and not named:
        tokenizer = _load_json(path, content)
    else:
        rules = bert_normalizer(lowercase, strip_accents)
        claiming = [kind for kind in named if kind.claims(content)]
        tokenizer = (claiming or named or [WORDPIECE])[0].read(path, content, rules)
    every = tokenizer.get_vocab(with_added_tokens=True).values()
    # A few ids may have no token.
    if len({*every}) < len(every) or max(every, default=0) > 2 * len(every):
        raise UserError(
            f"{path}: the ids of its {len(every)} pieces must be 0 to "
            f"{len(every) - 1}, each once; save it again with the program that made it"
        )
    tokenizer = fill_ids(tokenizer, 1 + max(every, default=-1))
    if whole and (fault := kind_of(tokenizer).fault(tokenizer)):
        raise UserError(f"{path}: {fault}")
    return tokenizer


def load_folder_tokenizer(folder: str | Path) -> Tokenizer | None:
    """Returns the tokenizer next to the weights, or None if there is none.

    tokenizer.json comes first, as in `transformers`. tokenizer_config.json overrides
    its case, accents, Chinese characters and space before a text, unless it names a
    class that takes the file as it is. Without `do_lower_case`, as in Google's
    releases, a vocab.txt is cased if lower-casing changes its tokens.

    Args:
      folder: A work directory, a Hugging Face folder or one of Google's.

    Raises:
      UserError: see `load`, or another program's rules cut the texts.
    """
    folder = storage.storage_path(folder)
    path = _find_tokenizer_file(folder)
    if path is None:
        return None
    untrusted.refuse_pointer(path)
    model = untrusted.read_optional(folder / "config.json")
    named = {"tokenizer_class": model.get("tokenizer_class")}
    fields = untrusted.read_optional(folder / "tokenizer_config.json")
    fields = named | fields if named["tokenizer_class"] else fields
    if path.suffix != ".json":
        # Another program may cut texts, and not by a vocab.txt alone.
        name = fields.get("tokenizer_class")
        if isinstance(name, str) and not _CLASSES.fullmatch(name):
            raise _unclear(folder, f"tokenizer_class={name!r:.80}")
    tokenizer = load(path)
    if path.suffix != ".json":
        _check_added(folder, fields, tokenizer)
        fields = {"do_lower_case": not _is_cased(tokenizer), **fields}
        if (folder / "config.json").exists():  # from `transformers`, not Google's code
            characters = _TRANSFORMERS_MAX_CHARACTERS
            # The stubs of `tokenizers` leave this field out.
            tokenizer.model.max_input_chars_per_word = characters  # type: ignore[attr-defined]
    if path.suffix != ".json" or fields.get("tokenizer_class") not in _AS_SAVED:
        _set_normalizer(tokenizer, fields)
        pre = tokenizer.pre_tokenizer
        if fields and isinstance(pre, pre_tokenizers.ByteLevel):
            pre.add_prefix_space = bool(fields.get("add_prefix_space", False))
            tokenizer.pre_tokenizer = pre
    # sentence-transformers may lower the case of a cased model's texts.
    vectors = untrusted.read_optional(folder / "sentence_bert_config.json")
    if vectors.get("do_lower_case") and not normalizer_settings(tokenizer).get(
        "lowercase"
    ):
        others = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *others])
    return tokenizer


def has_vocabulary(folder: Path) -> bool:
    """Returns whether a folder has a tokenizer. Raises as `load_folder_tokenizer`."""
    return _find_tokenizer_file(folder) is not None


def has_certain_ids(folder: Path, tokenizer: Tokenizer) -> bool:
    """Returns whether the ids of a folder's tokens are certain: in a vocab.txt they are
    the numbers of its lines, and one may be missing."""
    path = _find_tokenizer_file(folder)
    if path is None or path.name not in WORDPIECE.files:
        return True
    pieces = "\n".join(tokens_by_id(tokenizer))
    return hashlib.sha256(pieces.encode()).hexdigest() in _RELEASED


def load_config_tokenizer(config: ConfigDict) -> Tokenizer | None:
    """Returns the tokenizer of `config.tokenizer.vocab_file`, or `config.init_from`.

    Returns:
      The tokenizer, or None if both fields are empty, so that one must be trained.

    Raises:
      UserError: see `load` and `load_folder_tokenizer`, or `init_from` has none.
    """
    settings = config.tokenizer
    words, where = settings.get("add", ()), settings.vocab_file or config.init_from
    if not where:
        if words:
            raise UserError(
                "config.tokenizer.add: there is no vocabulary to add to; name "
                "config.init_from or config.tokenizer.vocab_file"
            )
        return None
    tokenizer: Tokenizer | None
    if settings.vocab_file:
        tokenizer = load(where, settings.lowercase, settings.strip_accents)
    else:
        folder, _ = storage.split_checkpoint_path(
            hub.model_folder(where), "checkpoints"
        )
        tokenizer = load_folder_tokenizer(folder)
    if tokenizer is None:
        raise UserError(
            f"{where}: no vocab.txt or tokenizer.json beside the weights; "
            "name one with --config.tokenizer.vocab_file"
        )
    architecture = config.model.architecture
    kind, family = kind_of(tokenizer), FAMILIES[architecture]
    exclusive = kind.exclusive or family.vocabulary.exclusive
    if exclusive and not family.vocabulary.has(tokenizer):
        raise UserError(
            f"{where}: a vocabulary of {kind.name}, but config.model.architecture="
            f"{architecture} is {family.title}; name one of {family.vocabulary.name}, "
            "or take the config of the other model"
        )
    return add_words(tokenizer, words)


def add_words(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """Adds words to a vocabulary. A text has them whole from then on.

    Raises:
      UserError: A word is empty, has white space around it or a line break, or is a
        token already, perhaps in another case.
    """
    space = kind_of(tokenizer).before_word
    for word in words:
        if not word or word != word.strip() or len(word.splitlines()) > 1:
            raise UserError(
                f"config.tokenizer.add: {word!r}: write a word without white space "
                "around it"
            )
        ids = tokenizer.encode(f"{space}{word}", add_special_tokens=False).ids
        is_one = len(ids) == 1 and ids[0] != special_ids(tokenizer).unk
        if is_one or tokenizer.token_to_id(word) is not None:
            raise UserError(
                f"config.tokenizer.add: {word!r} is a token already; leave it out"
            )
        # Not inside of other words. Byte-level tokens begin with the space before them.
        word_token = AddedToken(word, single_word=True, lstrip=bool(space))
        tokenizer.add_tokens([word_token])
    return tokenizer


def normalizer_settings(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the normalizer's settings in comparable form.

    For BERT's normalizer they are `lowercase`, `strip_accents`, ... with every default
    filled in.
    """
    fields = json.loads(tokenizer.to_str())["normalizer"] or {}
    if fields.get("type") == "BertNormalizer" and fields["strip_accents"] is None:
        fields["strip_accents"] = fields["lowercase"]
    return fields


def describe_tokenizer(tokenizer: Tokenizer) -> str:
    """Describes a tokenizer in one line: tokens, case, accents."""
    rules, size = normalizer_settings(tokenizer), tokenizer.get_vocab_size()
    if rules.get("type") != "BertNormalizer":
        return f"{size:,} pieces, normalizer {rules.get('type')}"
    case = "uncased" if rules["lowercase"] else "cased"
    accents = "stripped" if rules["strip_accents"] else "kept"
    return f"{size:,} pieces, {case}, accents {accents}"


def tokenizer_files(tokenizer: Tokenizer) -> dict[str, str]:
    """Returns the contents of a tokenizer's `tokenizer.json` and, of WordPieces or
    words, `vocab.txt`."""
    files = {"tokenizer.json": tokenizer.to_str(pretty=True)}
    if kind_of(tokenizer) is WORDPIECE:
        lines = (f"{token}\n" for token in tokens_by_id(tokenizer))
        files["vocab.txt"] = "".join(lines)
    return files


def save_tokenizer(tokenizer: Tokenizer, folder: str | Path) -> None:
    """Writes `tokenizer_files` into an existing folder."""
    for name, text in tokenizer_files(tokenizer).items():
        (storage.storage_path(folder) / name).write_bytes(text.encode("utf-8"))


def special_ids(tokenizer: Tokenizer) -> SpecialIds:
    """Returns the ids of [PAD], [UNK], [CLS], [SEP] and [MASK], or equivalents."""
    return kind_of(tokenizer).special_ids(tokenizer)


def kind_of(tokenizer: Tokenizer) -> VocabularyType:
    """Returns the kind of a vocabulary: WordPiece, unless a family claims it.

    Families are imported for byte pairs alone.
    """
    known: list[VocabularyType] = [OTHER_WORDPIECE, UNIGRAM]
    if isinstance(tokenizer.model, models.BPE):
        known = [*other_kinds(), CHARACTER_BPE]
    return next((kind for kind in known if kind.has(tokenizer)), WORDPIECE)


def other_kinds() -> list[VocabularyType]:
    """Returns the kinds of vocabularies that families have, but for WordPieces."""
    every = (family.vocabulary for family in FAMILIES.values())
    return [x for x in dict.fromkeys(every) if x not in (None, WORDPIECE)]


def _find_tokenizer_file(folder: Path) -> Path | None:
    """Returns a folder's tokenizer.json, or else its vocabulary.

    Raises:
      UserError: it has only a SentencePiece model, a program's own format.
    """
    kinds = (WORDPIECE, *other_kinds())
    names = ("tokenizer.json", *(kind.files[0] for kind in kinds))
    found = next((folder / x for x in names if (folder / x).is_file()), None)
    if found is None:
        for name in _SENTENCEPIECE:
            if (folder / name).is_file():
                raise UserError(
                    f"{folder}: {name} is not read; write a tokenizer.json from it: "
                    'python -c "import transformers; transformers.AutoTokenizer.'
                    f"from_pretrained('{folder}').save_pretrained('{folder}')\""
                )
    return found


def _check_added(folder: Path, fields: Mapping[str, Any], tokenizer: Tokenizer) -> None:
    """Raises UserError if a folder has tokens outside its vocab.txt."""
    added = fields.get("added_tokens_decoder", {}).values()
    tokens = {token["content"] for token in added}
    tokens |= untrusted.read_optional(folder / "added_tokens.json").keys()
    outside = sorted(token for token in tokens if tokenizer.token_to_id(token) is None)
    if outside:
        raise _unclear(folder, f"tokens outside of it: {outside!r:.80}")


def _unclear(folder: Path, why: str) -> UserError:
    return UserError(
        f"{folder}: its vocab.txt alone does not say how texts are cut ({why}); open "
        "it with `transformers` and save it as a tokenizer.json, if it can"
    )


def _is_cased(tokenizer: Tokenizer) -> bool:
    pieces = set(tokens_by_id(tokenizer)) - set(SPECIAL_TOKENS)
    words = [p for p in pieces if not p.startswith("[unused")]
    changed = sum(piece.lower() != piece for piece in words)
    return changed > _CASED_FROM * len(words)


def _set_normalizer(tokenizer: Tokenizer, fields: dict[str, Any]) -> None:
    """Applies tokenizer_config.json to BERT's normalizer, and keeps others as is."""
    normalizer = tokenizer.normalizer
    if not isinstance(normalizer, normalizers.BertNormalizer):
        return
    if fields.get("do_lower_case") is (not normalizer.lowercase):
        normalizer.strip_accents = None  # follows the case
    for theirs, ours in NORMALIZER_FIELDS.items():
        if isinstance(value := fields.get(theirs), bool):
            setattr(normalizer, ours, value)
    tokenizer.normalizer = normalizer


def _load_json(path: Path, content: str) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:  # the library raises nothing narrower
        raise UserError(
            f"{path}: not a tokenizer.json ({error}); "
            "save it again with `tokenizers`, or use a vocab.txt"
        ) from error
    if isinstance(tokenizer.model, models.BPE):
        tokenizer.model.dropout = None  # the same tokens each time
    # This program truncates and pads by itself.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return kind_of(tokenizer).complete(tokenizer)
