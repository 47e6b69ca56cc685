"""Words of a text as 64-bit hashes, and hashes of several words in a row."""

import functools
import hashlib
import re
import unicodedata

import numpy as np
from jaxtyping import UInt64

from bert_jax.data import overlap

# Chinese and Japanese are written without spaces: each character counts as a word, as
# for BERT's tokenizer.
_UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_KEPT = 1 << 20  # hashes of words in memory: some 150 MB at the most
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class _Hashes(dict[bytes, int]):
    """Hashes of the words met so far."""

    def __missing__(self, word: bytes) -> int:
        if len(self) >= _KEPT:
            self.clear()
        digest = hashlib.blake2b(word, digest_size=8).digest()
        self[word] = value = int.from_bytes(digest, "little")
        return value


_hashes = _Hashes()


def words(text: str) -> UInt64[np.ndarray, " words"]:
    """A hash of each word; case, spaces and punctuation do not matter."""
    if text.isascii():
        encoded = overlap.words(text.replace("_", " ")).split()
    else:
        text = _UNSPACED.sub(r" \g<0> ", unicodedata.normalize("NFC", text))
        parts = _word().findall(text.lower())
        encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return np.fromiter(map(_hashes.__getitem__, encoded), np.uint64, len(encoded))


@functools.cache
def _word() -> re.Pattern:
    """Letters, digits and the marks on them, which Python's `\\w` has not: the vowels
    of Indian scripts."""
    every = map(chr, range(0x300, 0x20000))
    marks = "".join(c for c in every if unicodedata.category(c)[0] == "M")
    return re.compile(rf"(?:[^\W_]|[{marks}])+")


def grams(
    words: UInt64[np.ndarray, " words"], size: int
) -> UInt64[np.ndarray, " grams"]:
    """A hash of each `size` words in a row; none where there are fewer words."""
    count = max(0, len(words) - size + 1)
    hashes = np.zeros(count, np.uint64)
    for start in range(size if count else 0):
        hashes = hashes * _FACTOR + words[start : start + count]
    return mixed(hashes)


def mixed(numbers: UInt64[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    """Spreads numbers over all 64 bits, each to another one (splitmix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
