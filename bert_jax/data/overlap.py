"""Which sentences that are held back stand in the training text as well.

Sentences are compared by a hash of their words in lower case. Of the training text all
hashes go to a file (8 bytes each), of what is held back they are in memory.
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Bool, UInt64

_WORD = re.compile(r"\w+")
_BLOCK = 1 << 20  # hashes read at a time


def keys(sentences: Iterable[str]) -> UInt64[np.ndarray, " sentences"]:
    """A hash of each sentence's words, whatever stands between them."""
    words = (" ".join(_WORD.findall(sentence.lower())) for sentence in sentences)
    digests = (
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for text in words
    )
    return np.frombuffer(b"".join(digests), np.uint64)


def standing(
    path: Path, wanted: UInt64[np.ndarray, " sentences"]
) -> UInt64[np.ndarray, " known"]:
    """Those of `wanted` that a file of hashes holds, sorted, each once."""
    wanted = np.unique(wanted)
    seen = np.zeros(len(wanted), bool)
    with path.open("rb") as file:
        while block := file.read(8 * _BLOCK):
            found = np.intersect1d(
                wanted, np.frombuffer(block, np.uint64), return_indices=True
            )
            seen[found[1]] = True
    return wanted[seen]


def among(
    found: UInt64[np.ndarray, " sentences"], known: UInt64[np.ndarray, " known"]
) -> Bool[np.ndarray, " sentences"]:
    """Whether each is one of `known`, which are sorted."""
    if not len(known):
        return np.zeros(len(found), bool)
    place = np.minimum(np.searchsorted(known, found), len(known) - 1)
    return known[place] == found
