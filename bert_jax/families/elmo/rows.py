"""Words for a model that reads their characters: a text's words, and rows of them.

A row holds a number for each word, and its batches the words' characters, looked up
when a batch is made: 50 numbers a word would be too many to keep for a data set.
"""

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict
from tokenizers import PreTokenizedString, Tokenizer, models

from bert_jax.data.rows import Batch, Feature, Rows
from bert_jax.families.elmo import characters, streams
from bert_jax.tokenization.wordpiece import add_special_tokens

# <S> and </S> in a row have the names of the tokens at those positions in BERT's, so
# that tasks make rows for both. Words come after these.
_MARKS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
_FIRST = len(_MARKS)
# Distinct words that a predicting process keeps: 2 MB of them take some 0.5 GB.
_MOST = 2_000_000


class WordEncoding(NamedTuple):
    """A text's words, with the attributes that `tokenizers.Encoding` has for its
    tokens."""

    ids: list[int]
    offsets: list[tuple[int, int]]  # characters of the text: the first, and the end
    word_ids: list[int]
    tokens: list[str]


def rule(config: ConfigDict) -> Tokenizer:
    """Returns a tokenizer that only cuts a text into words.

    Words end as `task.words` and `tokenizer.lowercase` and `strip_accents` specify. Its
    vocabulary is the marks.

    Raises:
      UserError: `task.words` is not one of `streams.CUTS`.
    """
    vocabulary = {mark: index for index, mark in enumerate(_MARKS)}
    # The stubs of `tokenizers` leave the arguments out.
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # type: ignore[call-arg]
    tokenizer.normalizer, tokenizer.pre_tokenizer = streams.rules(config)
    add_special_tokens(tokenizer)
    return tokenizer


class Words:
    """Numbers for the words met so far, and their characters.

    A server parses requests in several threads, and each may meet new words.

    Args:
      tokenizer: Tokenizer that specifies where words end.
      length: Number of character ids in a word.

    Attributes:
      cut: Number of distinct words with more bytes than the model reads.
    """

    def __init__(self, tokenizer: Tokenizer, length: int):
        self._tokenizer, self._length = tokenizer, length
        parts = json.loads(tokenizer.to_str())
        self._normalizes = parts["normalizer"] is not None
        self.cut = 0
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Drops all words. Their numbers will mean others."""
        marks = characters.of_words([characters.BEGIN, characters.END], self._length)
        with self._lock:
            self._numbers: dict[str, int] = {}
            self._characters = np.zeros((1024, self._length), np.int16)
            self._characters[1:3] = marks

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def is_full(self) -> bool:
        """Whether there are so many that a process which never ends should forget."""
        return len(self) > _MOST

    def encode(self, text: str) -> WordEncoding:
        """Returns a text's words with their numbers and offsets."""
        pretokenized = PreTokenizedString(text)
        if self._normalizes:
            pretokenized.normalize(self._tokenizer.normalizer.normalize)
        self._tokenizer.pre_tokenizer.pre_tokenize(pretokenized)
        splits = pretokenized.get_splits("original", "char")
        words = [word for word, _, _ in splits]
        offsets = [place for _, place, _ in splits]
        return WordEncoding(self.ids(words), offsets, list(range(len(words))), words)

    def normal(self, word: str) -> str:
        """Returns an already cut word as the rule writes it: one word, never empty."""
        return "".join(self._tokenizer.normalizer.normalize_str(word).split()) or word

    def ids(self, words: Iterable[str]) -> list[int]:
        """Returns the numbers of words that are cut already."""
        word_numbers, new = [], []
        with self._lock:
            numbers = self._numbers
            for word in words:
                number = numbers.get(word)
                if number is None:
                    number = numbers[word] = _FIRST + len(numbers)
                    new.append(word)
                word_numbers.append(number)
            if new:
                self._add(new)
        return word_numbers

    def characters(
        self, numbers: Int[np.ndarray, "*shape"]
    ) -> Int[np.ndarray, "*shape length"]:
        """Returns the ids of the characters of words and marks, with 0 for padding."""
        with self._lock:
            return self._characters[numbers]

    def _add(self, new: Sequence[str]) -> None:
        end = _FIRST + len(self._numbers)
        if end > len(self._characters):
            grown = np.zeros((2 * end, self._length), np.int16)
            grown[: len(self._characters)] = self._characters
            self._characters = grown
        self._characters[end - len(new) : end] = characters.of_words(new, self._length)
        self.cut += characters.are_cut(new, self._length)


class WordRows(Rows):
    """Rows whose batches also have `characters`, [batch, words, length]."""

    def __init__(
        self, features: Sequence[Feature], fill: Mapping[str, int], words: Words
    ):
        super().__init__(features, fill)
        # Their own copy: `words` may forget.
        self._known = np.union1d([0], self.table["input_ids"].values)
        self._table = words.characters(self._known)

    def batch(self, indices: Int[np.ndarray, "batch"], length: int) -> Batch:
        """Returns a batch as `Rows.batch` does, and the characters."""
        batch = super().batch(indices, length)
        places = np.searchsorted(self._known, batch["input_ids"])
        batch["characters"] = self._table[places].astype(np.int32)
        return batch
