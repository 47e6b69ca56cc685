"""Batches of windows of words, read in both directions, as a function of the step.

As in bilm's training (bilm/data.py): sentences in a random order, one after the other,
make a stream for each row of a batch. Each step takes its next window. A direction
reads the sentences in this order, and the words of each from its own side, so a window
has the beginning of a sentence in one direction and its end in the other. <S> is read
and never predicted, </S> the other way round. Backward their roles are exchanged.
"""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Int32, UInt16

from bert_jax.data.rows import Batch, RowIndex
from bert_jax.errors import UserError
from bert_jax.families.elmo import characters
from bert_jax.families.elmo.streams import SPECIAL, Prepared, Stream

_BEGIN, _END, _UNKNOWN = range(len(SPECIAL))
_KEPT = 200_000  # words whose characters are looked up, 20 MB. Others are spelled again

Places = Int[np.ndarray, "rows places"]


class Window(NamedTuple):
    """Words read and words to predict, as [rows, places] ids of all words of the
    text."""

    read: Int32[np.ndarray, "rows places"]
    next: Int32[np.ndarray, "rows places"]
    read_backward: Int32[np.ndarray, "rows places"]
    next_backward: Int32[np.ndarray, "rows places"]


class Windows:
    """The windows of a split.

    Args:
      vocabulary: Words that can be predicted. Others are <UNK>.
      length: Number of characters' ids in a word.
    """

    def __init__(self, data: Prepared, split: str, vocabulary: int, length: int):
        self._words, self._vocabulary, self._length = data.words, vocabulary, length
        self._stream: Stream = data.stream(split)

    @functools.cached_property
    def _characters(self) -> UInt16[np.ndarray, "words characters"]:
        """Characters of the most frequent words."""
        ids = characters.encode_words(self._words[:_KEPT], self._length)
        return ids.astype(np.uint16)

    @property
    def places(self) -> int:
        """Words to predict in each direction, </S> included."""
        return int(self._stream.starts[-1])

    def steps(self, rows: int, window: int) -> int:
        """Returns the number of steps of an epoch. Up to a window of each row is left
        over.

        Raises:
          UserError: The text is too short for one.
        """
        steps = self.places // (rows * window)
        if not steps:
            raise UserError(
                f"config.train.batch_size={rows} and config.task.unroll={window}: a "
                f"step takes {rows * window} words, and the text has {self.places}; "
                "lower them, or give more text"
            )
        return steps

    def train(
        self, step: int, size: int, window: int, rows: RowIndex, seed: int
    ) -> Iterator[Batch]:
        """Yields batches from `step` on, without end. Each epoch has its own order.

        Args:
          size: Number of rows in the global batch.
          window: Number of words in a row.
          rows: Rows of the global batch to return.
        """
        steps, sentences = self.steps(size, window), len(self._stream.starts) - 1
        # Row i reads the i-th part of the epoch's text.
        first = np.arange(size)[rows, None] * (steps * window) + np.arange(window)
        for epoch in range(step // steps, 1 << 31):
            order = np.random.default_rng((seed, epoch)).permutation(sentences)
            ends = np.cumsum(np.diff(self._stream.starts)[order])
            for at in range(step % steps, steps):
                yield self.batch(self._window(first + at * window, order, ends))
            step = 0

    def once(self, size: int, length: int, rows: RowIndex) -> Iterator[Batch]:
        """Yields all the text in its order, in rows of `length` words.

        `weights` are 0 where the last rows have no words.
        """
        count, ends = -(-self.places // length), self._stream.starts[1:]
        order = np.arange(len(ends))
        for start in range(0, -(-count // size) * size, size):
            row = np.arange(start, start + size)[rows, None]
            places = row * length + np.arange(length)
            is_word = places < self.places
            window = self._window(np.minimum(places, self.places - 1), order, ends)
            yield self.batch(window) | {"weights": is_word.astype(np.float32)}

    def batch(self, window: Window) -> Batch:
        """Returns a batch: `input_ids` and, for both directions, `characters` of the
        words read and `targets`, ids of the vocabulary."""
        columns: Batch = {"input_ids": self._known(window.read)}
        for name, read, following in (
            ("", window.read, window.next),
            ("_backward", window.read_backward, window.next_backward),
        ):
            columns[f"characters{name}"] = self._spelt(read)
            columns[f"targets{name}"] = self._known(following)
        return columns

    def _window(
        self,
        places: Places,
        order: Int[np.ndarray, " sentences"],
        ends: Int[np.ndarray, " sentences"],
    ) -> Window:
        """Returns the words at positions of the text with its sentences in an order.

        Args:
          ends: Position after each sentence, in this order.
        """
        ids, starts = self._stream
        number = np.searchsorted(ends, places, side="right")
        sentence = order[number]
        begin, end = starts[sentence], starts[sentence + 1]
        inside = places - (ends[number] - (end - begin))  # 0 is <S>, or </S> backward
        last = inside == end - begin - 1
        # The ids are one array of all sentences: another one follows the last word.
        following = ids[np.minimum(begin + inside + 1, len(ids) - 1)]
        from_end = np.where(inside == 0, begin, end - inside)
        return Window(
            ids[begin + inside],
            np.where(last, _END, following),
            np.where(inside == 0, _END, ids[from_end]),
            ids[end - 1 - inside],
        )

    def _known(self, ids: Int[np.ndarray, "rows places"]) -> np.ndarray:
        return np.where(ids < self._vocabulary, ids, _UNKNOWN).astype(np.int32)

    def _spelt(self, ids: Int[np.ndarray, "rows places"]) -> np.ndarray:
        distinct, inverse = np.unique(ids, return_inverse=True)
        kept = len(self._characters)
        spelt = self._characters[np.minimum(distinct, kept - 1)].astype(np.int32)
        rare = np.flatnonzero(distinct >= kept)
        if len(rare):
            words = [self._words[distinct[i]] for i in rare]
            spelt[rare] = characters.encode_words(words, self._length)
        return spelt[inverse.reshape(ids.shape)]
