"""Words as the ids of their bytes, as ELMo reads them (allenai/bilm-tf, bilm/data.py).

Ids 1 to 256 are a byte of UTF-8 and one. Then come the marks below. 0 is no word.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int32

LENGTH = 50  # ids of a word, in the released models
_BEGIN_SENTENCE, _END_SENTENCE, _BEGIN_WORD, _END_WORD, _PADDING = range(257, 262)
# The words that begin and end a sentence: they are a mark, not their letters.
BEGIN, END, UNKNOWN = "<S>", "</S>", "<UNK>"
_MARKS = {BEGIN: (_BEGIN_SENTENCE,), END: (_END_SENTENCE,)}


def encode_words(
    words: Sequence[str], length: int = LENGTH
) -> Int32[np.ndarray, "words {length}"]:
    """Returns the ids of each word: begin, bytes, end, padding.

    A word of more than `length` - 2 bytes is cut there, perhaps within a character. As
    in bilm, anything UTF-8 cannot write (half of a surrogate pair) is left out.

    Args:
      length: Number of ids for each word, 3 or more.
    """
    ids = np.full((len(words), length), _PADDING, np.int32)
    ids[:, 0] = _BEGIN_WORD
    for row, word in zip(ids, words, strict=True):
        inner = _MARKS.get(word) or [byte + 1 for byte in _encoded(word)[: length - 2]]
        row[1 : len(inner) + 1] = inner
        row[len(inner) + 1] = _END_WORD
    return ids


def count_cut_words(words: Sequence[str], length: int = LENGTH) -> int:
    """Returns the number of words that have more bytes than `encode_words` keeps."""
    return sum(len(_encoded(word)) > length - 2 for word in words)


def encode_sentences(
    sentences: Sequence[Sequence[str]], length: int = LENGTH
) -> Int32[np.ndarray, "sentences words {length}"]:
    """Sentences with <S> and </S>, padded at their ends with words of zeros."""
    longest = max(map(len, sentences), default=0) + 2
    ids = np.zeros((len(sentences), longest, length), np.int32)
    for row, words in zip(ids, sentences, strict=True):
        row[: len(words) + 2] = encode_words([BEGIN, *words, END], length)
    return ids


def _encoded(word: str) -> bytes:
    return word.encode("utf-8", "ignore")
