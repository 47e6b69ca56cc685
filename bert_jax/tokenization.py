"""WordPiece with BERT's normaliser: load a vocabulary, train one, save it.

The rules are those of google-research/bert, tokenization.py, as the `tokenizers`
library runs them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32
from tokenizers import (
    Encoding,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from bert_jax import storage
from bert_jax.errors import UserError
from bert_jax.storage import Path

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# The released vocabularies have [PAD] at 0 and the others from here on.
RELEASED_FIRST_SPECIAL = 100
# A vocabulary of fewer pieces than this has no room to spare for [unusedN].
RELEASED_LAYOUT_FROM = 10_000
# Longer words become [UNK]: WordpieceTokenizer in tokenization.py.
MAX_CHARACTERS_PER_WORD = 200
# Characters that a trained vocabulary knows, most frequent first; the released
# uncased vocabulary has 997.
MAX_ALPHABET = 1000


class SpecialIds(NamedTuple):
    """Where the special tokens stand in a vocabulary."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


def load(path: str | Path, lowercase: bool = True) -> Tokenizer:
    """Reads a vocabulary: `vocab.txt`, or `tokenizer.json` (known by its ending).

    Args:
      path: a file of one piece a line, the line's number from 0 being its id; or
        what `tokenizers` saves, which brings its own normaliser.
      lowercase: lower the case and strip accents, as the uncased models do. Not
        used for a tokenizer.json.

    Raises:
      UserError: the file is missing, not UTF-8 or empty; a piece stands twice; a
        special token is missing.
    """
    path = storage.path(path)
    try:
        content = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UserError(
            f"{path}: cannot read the vocabulary "
            f"({error.strerror or type(error).__name__}); "
            "set tokenizer.vocab_file to a vocab.txt or tokenizer.json"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{line}: byte {error.start} is not UTF-8; "
            "convert the vocabulary, for instance with iconv"
        ) from error
    if path.suffix == ".json":
        tokenizer = _from_json(path, content)
    else:
        tokenizer = _build(_read_vocabulary(path, content), lowercase)
    for token in SPECIAL_TOKENS:
        if tokenizer.token_to_id(token) is None:
            raise UserError(
                f"{path}: the vocabulary has no {token}; BERT needs "
                f"{' '.join(SPECIAL_TOKENS)}: add it as a line of its own"
            )
    return tokenizer


def train(documents: Iterable[str], vocab_size: int, lowercase: bool) -> Tokenizer:
    """Trains a WordPiece vocabulary of exactly `vocab_size` pieces.

    The special tokens stand at 0 and 100 to 103 with [unusedN] between them, as in
    the released vocabularies, when there are at least 10,000 pieces, and at 0 to 4
    otherwise. Where the text does not give enough pieces, [unusedN] fill the end.
    The same documents give the same vocabulary.

    Args:
      documents: the text; it is held in memory.
      vocab_size: pieces, special tokens included.
      lowercase: lower the case and strip accents.
    """
    first = _first_pieces(vocab_size)
    normalizer = _normalizer(lowercase)
    documents = list(documents)
    counts: Counter[str] = Counter()
    for text in documents:
        counts.update(normalizer.normalize_str(text))
    # A small vocabulary keeps half of its places for more than single characters.
    room = min(MAX_ALPHABET, (vocab_size - len(first)) // 4)
    letters = [c for c in counts if not c.isspace()]
    alphabet = sorted(sorted(letters, key=lambda c: (-counts[c], c))[:room])
    if not alphabet:
        raise UserError(
            f"cannot train {vocab_size} pieces on {len(documents)} documents: "
            "raise tokenizer.vocab_size or give more text"
        )
    # The trainer numbers characters in the order of a hash table that differs from
    # run to run, and breaks ties by these numbers. Named beforehand, they are fixed.
    characters = alphabet + ["##" + c for c in alphabet]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size - len(first),
        special_tokens=characters,
        limit_alphabet=0,
        show_progress=False,
    )
    learner = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # type: ignore[call-arg]
    learner.normalizer = normalizer
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    learner.train_from_iterator(documents, trainer)
    learnt = learner.get_vocab(with_added_tokens=True)
    pieces = first + sorted(learnt, key=lambda piece: learnt[piece])
    unused = len(first) - len(SPECIAL_TOKENS)
    missing = vocab_size - len(pieces)
    pieces += [f"[unused{n}]" for n in range(unused, unused + missing)]
    return _build(pieces, lowercase)


def files(tokenizer: Tokenizer) -> dict[str, str]:
    """What is kept of a tokenizer: the texts of `vocab.txt` and `tokenizer.json`."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    lines = "".join(f"{p}\n" for p in sorted(vocabulary, key=lambda p: vocabulary[p]))
    return {"vocab.txt": lines, "tokenizer.json": tokenizer.to_str(pretty=True)}


def save(tokenizer: Tokenizer, folder: str | Path) -> None:
    """Writes `files` into an existing folder."""
    for name, text in files(tokenizer).items():
        (storage.path(folder) / name).write_bytes(text.encode("utf-8"))


def special_ids(tokenizer: Tokenizer) -> SpecialIds:
    """The ids of [PAD], [UNK], [CLS], [SEP] and [MASK]."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    return SpecialIds(*(vocabulary[token] for token in SPECIAL_TOKENS))


def padded(
    encodings: Sequence[Encoding], pad: int, limit: int
) -> tuple[Int32[np.ndarray, "rows length"], ...]:
    """Ids, mask (1 for a token) and segment ids of some texts, a row each.

    The length is a power of two, or the limit: few shapes, few compilations.

    Args:
      pad: the id of [PAD].
      limit: tokens of the longest text at most.
    """
    length = min(power_of_two(len(encoding.ids) for encoding in encodings), limit)
    ids, mask, segments = np.zeros((3, len(encodings), length), np.int32)
    ids[:] = pad
    for row, encoding in enumerate(encodings):
        end = len(encoding.ids)
        ids[row, :end] = encoding.ids
        mask[row, :end] = 1
        segments[row, :end] = encoding.type_ids
    return ids, mask, segments


def power_of_two(lengths: Iterable[int]) -> int:
    """The smallest power of two that holds the longest of them."""
    return 1 << (max(1, *lengths, 1) - 1).bit_length()


def _first_pieces(vocab_size: int) -> list[str]:
    if vocab_size < RELEASED_LAYOUT_FROM:
        return list(SPECIAL_TOKENS)
    unused = [f"[unused{n}]" for n in range(RELEASED_FIRST_SPECIAL - 1)]
    return [SPECIAL_TOKENS[0], *unused, *SPECIAL_TOKENS[1:]]


def _read_vocabulary(path: Path, content: str) -> list[str]:
    # At "\n" only: U+2028 is a piece of the Chinese vocabulary.
    pieces = [line.removesuffix("\r") for line in content.split("\n")]
    if not pieces[-1]:
        pieces.pop()
    if not pieces:
        raise UserError(f"{path}: the vocabulary is empty; it needs a piece a line")
    lines: dict[str, int] = {}
    for number, piece in enumerate(pieces, 1):
        if piece in lines:
            raise UserError(
                f"{path}:{number}: {piece!r} stands already in line {lines[piece]}; "
                "remove one of the two"
            )
        lines[piece] = number
    return pieces


def _from_json(path: Path, content: str) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(content)
    except Exception as error:  # the library raises nothing narrower
        raise UserError(
            f"{path}: not a tokenizer.json ({error}); "
            "write it anew with `tokenizers` or use a vocab.txt"
        ) from error
    # Lengths are this program's business, whatever the file was saved with.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _normalizer(lowercase: bool) -> normalizers.BertNormalizer:
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=lowercase,
        lowercase=lowercase,
    )


def _build(pieces: list[str], lowercase: bool) -> Tokenizer:
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.WordPiece(  # type: ignore[call-arg]
            vocab=vocabulary,
            unk_token="[UNK]",
            max_input_chars_per_word=MAX_CHARACTERS_PER_WORD,
        )
    )
    tokenizer.normalizer = _normalizer(lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    present = [token for token in SPECIAL_TOKENS if token in vocabulary]
    tokenizer.add_special_tokens(present)
    if "[CLS]" in vocabulary and "[SEP]" in vocabulary:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(t, vocabulary[t]) for t in ("[CLS]", "[SEP]")],
        )
    return tokenizer
