"""A vocabulary trained on an even sample of a corpus."""

import hashlib
import heapq
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from bert_jax import tokenization
from bert_jax.errors import UserError

# The released vocabularies have [PAD] at 0 and the other special tokens from here on.
RELEASED_FIRST_SPECIAL = 100
# Smaller vocabularies have no room to spare for [unusedN].
RELEASED_LAYOUT_FROM = 10_000
# Maximum characters in a trained vocabulary, the most frequent ones; the released
# uncased vocabulary has 997.
MAX_ALPHABET = 1000
_WORD = 10_000  # characters of a word from which on it is read in parts


def train(
    documents: Iterable[str],
    vocab_size: int,
    lowercase: bool,
    strip_accents: bool = True,
) -> Tokenizer:
    """Trains a WordPiece vocabulary of exactly `vocab_size` pieces.

    With 10,000 pieces or more, the special tokens are at 0 and 100 to 103, [unusedN]
    between them, as in the released vocabularies; with fewer, at 0 to 4. If the text
    yields too few pieces, [unusedN] pad the end. The same documents give the same
    vocabulary.

    Args:
      documents: the text; all of it is in memory.
      vocab_size: pieces, special tokens included.
      lowercase: lower the case and, with `strip_accents`, strip accents.
    """
    first = _first_pieces(vocab_size)
    normalizer = tokenization.bert_normalizer(lowercase, strip_accents)
    documents = list(documents)
    letters = alphabet(documents, vocab_size, len(first), normalizer)
    # The trainer numbers characters in hash order, which differs from run to run, and
    # breaks ties by these numbers. Passing them as special tokens fixes the order.
    characters = letters + ["##" + c for c in letters]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size - len(first),
        special_tokens=characters,
        limit_alphabet=0,
        show_progress=False,
    )
    # A mistake of the stubs of `tokenizers`: the vocabulary may be left out.
    learner = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # type: ignore[call-arg]
    learner.normalizer = normalizer
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    learner.train_from_iterator(documents, trainer)
    learnt = learner.get_vocab(with_added_tokens=True)
    pieces = first + sorted(learnt, key=lambda piece: learnt[piece])
    unused = len(first) - len(tokenization.SPECIAL_TOKENS)
    missing = vocab_size - len(pieces)
    pieces += [f"[unused{n}]" for n in range(unused, unused + missing)]
    return tokenization.build(pieces, lowercase, strip_accents)


def alphabet(
    documents: Sequence[str],
    vocab_size: int,
    reserved: int,
    normalizer: normalizers.Normalizer,
) -> list[str]:
    """The most frequent characters, sorted.

    Args:
      reserved: pieces of the vocabulary that are not learnt.
    """
    counts: Counter[str] = Counter()
    for text in documents:
        counts.update(normalizer.normalize_str(text))
    # A small vocabulary keeps half of its pieces for more than single characters.
    room = min(MAX_ALPHABET, (vocab_size - reserved) // 4)
    letters = [c for c in counts if not c.isspace()]
    frequent = sorted(sorted(letters, key=lambda c: (-counts[c], c))[:room])
    if not frequent:
        raise UserError(
            f"cannot train {vocab_size} pieces on {len(documents)} documents: "
            "raise tokenizer.vocab_size or give more text"
        )
    return frequent


def keyed_hash(seed: int, purpose: str, index: int) -> float:
    """A number in [0, 1) that depends only on the arguments."""
    digest = hashlib.blake2b(f"{seed} {purpose} {index}".encode(), digest_size=8)
    return int.from_bytes(digest.digest()) / 2**64


def sample(
    documents: Iterable[tuple[int, str]], max_bytes: int, seed: int
) -> list[str]:
    """Samples whole documents, each with the same chance, up to `max_bytes` in total.

    Ranks documents by a hash of their index and keeps the first ones, as many as fit.
    Only those are in memory.

    Args:
      documents: (index, text).
      max_bytes: of UTF-8.
      seed: of the hash.

    Returns:
      the texts, in the order of the documents.
    """
    kept: list[tuple[float, int, str, int]] = []  # a heap, the highest rank on top
    total, limit = 0, 1.0  # ranks from `limit` on did not fit
    for index, text in documents:
        rank = keyed_hash(seed, "vocabulary", index)
        if rank >= limit:
            continue
        size = len(text.encode())
        heapq.heappush(kept, (-rank, index, text, size))
        total += size
        while total > max_bytes:
            dropped, _, _, size = heapq.heappop(kept)
            total, limit = total - size, -dropped
    return [text for _, _, text, _ in sorted(kept, key=lambda entry: entry[1])]


def write(
    documents: Iterable[tuple[int, str]],
    settings: ConfigDict,
    seed: int,
    identity: dict[str, Any],
    folder: Path,
    trainer: Callable[..., Tokenizer],
) -> None:
    """Trains and saves vocab.txt, tokenizer.json and metadata.json.

    Args:
      documents: (index, text) of the training split.
      settings: `config.tokenizer`.
      seed: of the sample.
      identity: what shaped the vocabulary, saved in metadata.json.
      folder: empty.
      trainer: as `train`.

    Raises:
      UserError: the sample is empty: a document is longer than `sample_bytes`.
    """
    start = time.monotonic()
    texts = sample(documents, settings.sample_bytes, seed)
    texts = [_parted(text) for text in texts]
    if not texts:
        raise UserError(
            f"tokenizer.sample_bytes={settings.sample_bytes}: a document drawn for the "
            "vocabulary is longer than this; raise it"
        )
    rules = (settings.lowercase, settings.strip_accents)
    tokenizer = trainer(texts, settings.vocab_size, *rules)
    tokenization.save(tokenizer, folder)
    special = tokenization.special_ids(tokenizer)._asdict()
    sampled = {
        "texts": len(texts),  # documents, or pieces of long ones
        "bytes": sum(len(text.encode()) for text in texts),
    }
    with open(folder / "metadata.json", "w", encoding="utf-8") as file:
        json.dump(
            identity | {"special_ids": special, "sample": sampled}, file, indent=1
        )
    print(
        f"trained a vocabulary of {settings.vocab_size:,} pieces on "
        f"{sampled['bytes'] / 1e6:.1f} MB of text in {time.monotonic() - start:.1f} s",
        file=sys.stderr,
    )


def _parted(text: str) -> str:
    """A text without words of more than _WORD characters, for which trainers take a
    time that grows with its square."""
    if len(text) <= _WORD or max(map(len, text.split()), default=0) <= _WORD:
        return text
    words = re.compile(rf"\w{{1,{_WORD}}}")
    return words.sub(lambda word: word[0] + " " * (len(word[0]) == _WORD), text)


def _first_pieces(vocab_size: int) -> list[str]:
    if vocab_size < RELEASED_LAYOUT_FROM:
        return list(tokenization.SPECIAL_TOKENS)
    unused = [f"[unused{n}]" for n in range(RELEASED_FIRST_SPECIAL - 1)]
    return [tokenization.SPECIAL_TOKENS[0], *unused, *tokenization.SPECIAL_TOKENS[1:]]
