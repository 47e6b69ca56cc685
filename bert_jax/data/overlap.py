"""Search for held-out sentences that are also in the training text.

Sentences are compared by a hash of their words in lower case. The training text's
hashes are in a file (8 bytes each), the held-out sentences' in memory.
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import UInt64

_WORD = re.compile(r"\w+")
# Every byte of ASCII as `_WORD` and `str.lower` see it, with a space outside of words.
_ASCII = "".join(
    chr(code).lower() if _WORD.match(chr(code)) else " " for code in range(128)
).encode() + bytes(128)
_BLOCK = 1 << 20  # hashes read at a time


def sentence_keys(sentences: Iterable[str]) -> UInt64[np.ndarray, " sentences"]:
    """Hashes each sentence's words. Spaces and punctuation do not matter."""
    digests = (
        hashlib.blake2b(normalized_words(sentence), digest_size=8).digest()
        for sentence in sentences
    )
    return np.frombuffer(b"".join(digests), np.uint64)


def normalized_words(sentence: str) -> bytes:
    """Returns its words in lower case, in UTF-8, with a space between two."""
    if sentence.isascii():  # the same in half the time
        return b" ".join(sentence.encode().translate(_ASCII).split())
    return " ".join(_WORD.findall(sentence.lower())).encode("utf-8", "surrogatepass")


def in_file(
    path: Path, keys: UInt64[np.ndarray, " sentences"]
) -> UInt64[np.ndarray, " known"]:
    """Returns the `sentence_keys` that a file of hashes contains, sorted, each once."""
    keys = np.unique(keys)
    seen = np.zeros(len(keys), bool)
    with path.open("rb") as file:
        while block := file.read(8 * _BLOCK):
            seen |= np.isin(keys, np.frombuffer(block, np.uint64))
    return keys[seen]
