"""Whether a vocabulary fits texts: how many words fall to single letters or [UNK].

A vocabulary knows few words of a script that it was not made from, but many of its
letters: bert-base-uncased cuts Greek into letters, and Korean, whose syllables it takes
apart, into the letters of the syllables. Characters of Chinese and syllables of Korean
and Japanese are no letters here: as pieces they are as BERT means them.
"""

import unicodedata
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from tokenizers import Tokenizer, models

from bert_jax import tokenization
from bert_jax.data.rows import Rows

# Of the words. Measured (docs/data.md): at most 12% where the vocabulary has the
# text's script, at least 65% where it has not.
MANY_APART = 0.25
LEAST_WORDS = 100  # of fewer nothing is said
SAMPLE = 1000  # rows
_WHOLE = ("SYLLABLE", "IDEOGRAPH", "HIRAGANA", "KATAKANA")  # in characters' names


class Fit(NamedTuple):
    """What was counted; a word has a letter, or is [UNK]."""

    words: int = 0
    apart: int = 0  # words that are [UNK], or more than one piece, each a letter
    pieces: int = 0  # of the words
    ids: int = 0  # [CLS] and [SEP] included
    unknown: int = 0  # [UNK] among the ids

    @property
    def unknown_share(self) -> float:
        """The share of [UNK] among the ids."""
        return self.unknown / max(1, self.ids)

    def fault(self, where: str) -> str:
        """A line about texts that are cut too small; empty if they are not."""
        if self.words < LEAST_WORDS or self.apart <= MANY_APART * self.words:
            return ""
        return (
            f"{where}: {self.apart / self.words:.0%} of the words are cut into single "
            f"letters or [UNK] ({self.pieces / self.words:.1f} pieces a word): this "
            "vocabulary does not fit the text; see docs/data.md"
        )


def measured(ids: Int[np.ndarray, " tokens"], tokenizer: Tokenizer) -> Fit:
    """Counts the words of some rows, one after the other.

    A word is a piece and the pieces after it that start with ##. In another model than
    WordPiece there are no such pieces, and no words are counted.
    """
    known, places = np.unique(ids, return_inverse=True)
    pieces = [str(tokenizer.id_to_token(int(id_))) for id_ in known]
    marks = ("[UNK]", tokenization.kind_of(tokenizer).unknown)
    is_unknown = np.array([p in marks for p in pieces])[places]
    unknown = int(np.count_nonzero(is_unknown))
    if not isinstance(tokenizer.model, models.WordPiece):
        return Fit(ids=len(ids), unknown=unknown)
    is_special = np.array([p in tokenization.SPECIAL_TOKENS for p in pieces])[places]
    continues = np.array([_continues(p) for p in pieces])[places]
    bare = [p[2:] if _continues(p) else p for p in pieces]
    has_letter = np.array([any(map(str.isalpha, p)) for p in bare])[places]
    is_letter = np.array([len(p) == 1 and not _is_whole(p) for p in bare])[places]
    after_special = np.concatenate([[True], is_special[:-1]])
    starts = np.flatnonzero(~continues | after_special)
    sizes = np.diff(np.append(starts, len(ids)))
    opaque = is_unknown[starts]
    words = np.logical_or.reduceat(has_letter, starts) & ~is_special[starts] | opaque
    apart = np.logical_and.reduceat(is_letter, starts) & (sizes > 1) | opaque
    return Fit(
        words=int(words.sum()),
        apart=int((words & apart).sum()),
        pieces=int(sizes[words].sum()),
        ids=len(ids),
        unknown=unknown,
    )


class Watch:
    """Looks at the first batches, until there are enough words to judge."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._fit = Fit()
        self._judged = False

    def fault(self, ids: Int[np.ndarray, "..."], where: str) -> str:
        """`Fit.fault`, once; empty before and after."""
        if self._judged:
            return ""
        fit = measured(np.ravel(ids), self._tokenizer)
        # Rows are whole, so counts add up; texts of numbers may have no word at all.
        self._fit = Fit(*map(sum, zip(self._fit, fit, strict=True)))
        self._judged = self._fit.words >= LEAST_WORDS
        return self._fit.fault(where)


def of_rows(rows: Rows, tokenizer: Tokenizer) -> Fit:
    """Counts the words of a sample of rows."""
    sampled = [np.ravel(ids) for ids in rows.ids(sample(len(rows)))]
    return measured(np.concatenate(sampled), tokenizer)


def sample(count: int) -> Int[np.ndarray, " rows"]:
    """The indices of at most SAMPLE of `count` rows, at even distances."""
    return np.linspace(0, count - 1, min(count, SAMPLE)).astype(int)


def _continues(piece: str) -> bool:
    return piece.startswith("##") and len(piece) > 2


def _is_whole(character: str) -> bool:
    """Whether it is a syllable or more."""
    name = unicodedata.name(character, "")
    return any(kind in name for kind in _WHOLE)
