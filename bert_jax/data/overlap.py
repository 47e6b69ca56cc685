"""Search for held-out sentences or rows that are also in the training data.

Sentences are compared by a hash of their words in lower case. The training text's
hashes are in a file (8 bytes each), the held-out sentences' in memory.
"""

import collections
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt64

from bert_jax.data.tables import Row

_WORD = re.compile(r"\w+")
# Every byte of ASCII as `_WORD` and `str.lower` see it, with a space outside of words.
_ASCII = "".join(
    chr(code).lower() if _WORD.match(chr(code)) else " " for code in range(128)
).encode() + bytes(128)
_BLOCK = 1 << 20  # hashes read at a time
# The fields of a task's rows that its texts are in.
_FIELDS = ("text", "text_b", "texts", "words", "question", "context", "endings")


def sentence_keys(sentences: Iterable[str]) -> UInt64[np.ndarray, " sentences"]:
    """Hashes each sentence's words. Spaces and punctuation do not matter."""
    digests = []
    for sentence in sentences:
        if sentence.isascii():  # the same in half the time
            words = b" ".join(sentence.encode().translate(_ASCII).split())
        else:
            lower = " ".join(_WORD.findall(sentence.lower()))
            words = lower.encode("utf-8", "surrogatepass")
        digests.append(hashlib.blake2b(words, digest_size=8).digest())
    return np.frombuffer(b"".join(digests), np.uint64)


def find_known_keys(
    path: Path, keys: UInt64[np.ndarray, " sentences"]
) -> UInt64[np.ndarray, " known"]:
    """Returns the `sentence_keys` that a file of hashes contains, sorted, each once."""
    keys = np.unique(keys)
    seen = np.zeros(len(keys), bool)
    with path.open("rb") as file:
        while block := file.read(8 * _BLOCK):
            seen |= np.isin(keys, np.frombuffer(block, np.uint64))
    return keys[seen]


def shared_texts(
    train: Sequence[Row], others: Mapping[str, Sequence[Row]]
) -> dict[str, int]:
    """Counts rows whose texts are in the training data too, by split, and training
    texts with two labels, without regard to case and white space."""
    labels = collections.defaultdict(set)
    for row in train:
        labels[hash(normalized_texts(row))].add(row.get("label"))
    found = {
        f"{split}: texts that are in train too, of {len(rows):,}": sum(
            hash(normalized_texts(row)) in labels for row in rows
        )
        for split, rows in others.items()
    }
    numbers = train and isinstance(train[0].get("label"), float)
    several = sum(len(each) > 1 for each in labels.values())
    found["train: texts with two labels or more"] = 0 if numbers else several
    return {what: count for what, count in found.items() if count}


def normalized_texts(row: Row) -> tuple[str, ...]:
    """Returns a row's texts in lower case, with one space between words."""
    texts: list[str] = []
    for name in _FIELDS:
        value = row.get(name) or ()
        texts += [value] if isinstance(value, str) else value
        texts.append("")
    return tuple(" ".join(str(text).lower().split()) for text in texts)
