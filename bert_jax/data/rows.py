"""Texts as sequences, stored without padding, and padded batches."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
from jaxtyping import Int, Int32
from tokenizers import Encoding, Tokenizer

from bert_jax.data import workers
from bert_jax.data.table import Column, Table
from bert_jax.errors import UserError

Batch = dict[str, np.ndarray]

# The rows of a global batch that a process reads.
RowIndex = slice | Int[np.ndarray, "local"]

# The next sentence label where there is no pair.
PADDING_LABEL = -1

# Practically endless: Grain's endless repetition has no length in batches of 1.
EPOCHS = 1_000_000

# A batch is padded to one of these, or to the maximum: few shapes, few compilations,
# and padding is less than a third of the longest row. No text is longer than the last.
LENGTHS = tuple(
    size for power in range(3, 50) for size in (1 << power, 3 << (power - 1))
)

# For a batch that is only answered, closer on a CPU, where compiling takes a second.
# A GPU's compiler tries kernels out, for seconds, and short rows are as fast as these.
_ON_CPU = (*range(16, 128, 16), *(n << p for p in range(4, 47) for n in range(8, 16)))
_ELSEWHERE = tuple(length for length in LENGTHS if length >= 32)

# Bound on a batch's arrays on a CPU: malloc requests larger ones from the system in
# each call, which clears them first (runtime/environment.py).
_BYTES = 32 << 20


class BatchSize(NamedTuple):
    """The number of rows that a batch may have.

    Attributes:
      rows: Maximum number of rows.
      width: Width of a token's vector, where a batch's arrays should stay small, as on
        a CPU, else 0.
    """

    rows: int
    width: int = 0

    def max_rows(self, tokens: int) -> int:
        """Returns the maximum number of rows of `tokens` tokens, at least 1."""
        if not self.width:
            return self.rows
        # Float32: vectors and the intermediate layer's, and twice the scores, with a
        # head for each 64 numbers. Of widths 256 to 768 XLA's buffers up to the bound
        # were within 10% of it, those of a single row up to 27% larger.
        row = 4 * tokens * self.width * (6 + tokens / 32)
        return max(1, min(self.rows, int(_BYTES / row)))

    def length(self, longest: int, limit: int) -> int:
        """Returns the padded length for a batch's longest row of `longest` tokens."""
        return padded_length(longest, limit, _ON_CPU if self.width else _ELSEWHERE)


class Feature(NamedTuple):
    """One sequence for the model (or, for choices, one group of sequences).

    `columns` has integers: `input_ids` and `segment_ids`, [length] or [choices,
    length], others of that length, such as the tag of each token, and scalars, such as
    a label. Floats describe the whole sequence: a number, or an array of one fixed
    shape. `input_mask` may be left out where no position is padding.
    """

    example: int  # index of its example, which may have several windows
    columns: Mapping[str, Any]
    info: Any = None  # for the answers only, not for the model


class Rows:
    """The columns of some features.

    Args:
      features: At least one feature, all with the same columns.
      fill: Padding value of each column that is not padded with 0.

    Attributes:
      table: The columns. Those of tokens have [tokens] or [tokens, choices].
      lengths: Tokens of each row.
    """

    def __init__(self, features: Sequence[Feature], fill: Mapping[str, int]):
        self._fill = dict(fill)
        self.table = Table.from_rows([feature.columns for feature in features])
        self.lengths = self.table["input_ids"].sizes()

    def __len__(self) -> int:
        return self.table.rows

    @property
    def segments(self) -> int:
        """Number of segments of the texts: 2 for pairs."""
        return 1 + int(self.table["segment_ids"].values.max(initial=0))

    def digest(self) -> str:
        """Returns a digest that identifies these rows and their order."""
        return self.table.digest()

    def batch(self, indices: Int[np.ndarray, "batch"], length: int) -> Batch:
        """Returns rows as arrays [batch, length] (or [batch, choices, length]).

        Args:
          indices: Indices of the rows. One past the last gives an empty row.
          length: Length to pad to.

        Returns:
          The columns, `input_mask` (1 for a token), and `row_weights` [batch]: 0 for a
          padding row.
        """
        taken = self.table.take(indices)
        ids, ends = taken["input_ids"]
        taken.setdefault("input_mask", Column(np.ones_like(ids), ends))
        batch = {}
        for name, column in taken.items():
            batch[name] = column.values
            if column.ends is not None:
                padded = column.pad(length, self._fill.get(name, 0))
                batch[name] = np.moveaxis(padded, 1, -1)
        return batch | {"row_weights": (indices < len(self)).astype(np.float32)}

    def fraction(self, token: int) -> float:
        """Returns the fraction of this one among all tokens."""
        return float(np.mean(self.table["input_ids"].values == token))

    def length(self, indices: Int[np.ndarray, "batch"], limit: int) -> int:
        """Returns the length to pad these rows to: one of LENGTHS, or the limit."""
        longest = self.lengths[indices[indices < len(self)]].max(initial=1)
        return padded_length(int(longest), limit)

    def batches(
        self,
        step: int,
        size: int,
        rows: RowIndex,
        seed: int,
        *,
        limit: int,
        to_limit: bool = False,
    ) -> Iterator[Batch]:
        """Yields endless training batches from `step` on, read ahead.

        Every epoch is reshuffled and has each row once. A batch may span two epochs.
        A batch is padded to its longest row.

        Args:
          size: Rows of the global batch.
          rows: Rows of the global batch to return.
          limit: Maximum tokens of a row.
          to_limit: Whether to pad to `limit` instead.
        """

        def batch(indices: Int[np.ndarray, "batch"]) -> Batch:
            return self.training_batch(indices, rows, limit, to_limit)

        import grain  # slow, and inference does without it

        order = grain.MapDataset.range(len(self)).seed(seed).shuffle().repeat(EPOCHS)
        return read_ahead(order.batch(size).map(batch)[step:])

    def training_batch(
        self,
        indices: Int[np.ndarray, "batch"],
        rows: RowIndex,
        limit: int,
        to_limit: bool,
    ) -> Batch:
        """Returns rows of the batch of all indices, with arguments as in `batches`."""
        length = limit if to_limit else self.length(indices, limit)
        return self.batch(indices[rows], length)

    def sorted_batches(
        self, size: int, rows: RowIndex, *, limit: int, to_limit: bool = False
    ) -> Iterator[Batch]:
        """Yields batches that have each row once, in the order of `sorted_indices`."""
        for indices in self.sorted_indices(size):
            length = limit if to_limit else self.length(indices, limit)
            yield self.batch(indices[rows], length)

    def sorted_indices(self, size: int) -> Iterator[Int[np.ndarray, "size"]]:
        """Yields row indices of each batch, sorted by length, every row once.

        The last batch is padded with indices past the last row.
        """
        order = np.argsort(self.lengths, kind="stable")
        rest = -len(order) % size
        padded = np.concatenate([order, np.full(rest, len(order))])
        return iter(padded.reshape(-1, size))


def read_ahead(batches: Any) -> Iterator[Batch]:
    """Iterates over a `grain.MapDataset` of batches, and reads some in advance."""
    import grain  # slow, and inference does without it

    # With few cores a second reader only slows the step down.
    threads = min(4, max(1, workers.available_cores() // 2))
    ahead = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=8)
    return iter(batches.to_iter_dataset(ahead))


def scale_rows(rows: RowIndex, whole: int, size: int) -> Int[np.ndarray, " scaled"]:
    """Scales row indices from a batch of `whole` rows to one of `size` rows."""
    held = np.zeros(whole, bool)
    held[rows] = True
    return np.flatnonzero(held[np.arange(size) * whole // size])


def padded_length(longest: int, limit: int, sizes: Sequence[int] = LENGTHS) -> int:
    """Returns the first of the sizes that `longest` tokens fit in, or the limit."""
    return next((n for n in sizes if longest <= n < limit), limit)


def sorted_groups(
    lengths: Sequence[int], size: BatchSize, limit: int
) -> list[tuple[Int[np.ndarray, "rows"], int]]:
    """Returns groups of indices, sorted by length, with the tokens to pad each to.

    A group has as many as a batch may have. The first may be smaller.

    Args:
      limit: Maximum tokens of a row.
    """
    order = np.argsort(lengths, kind="stable")
    groups, end = [], len(order)
    while end:  # from the longest down, whose length a group has
        tokens = size.length(int(lengths[order[end - 1]]), limit)
        start = max(0, end - size.max_rows(tokens))
        groups.append((order[start:end], tokens))
        end = start
    return groups[::-1]


def power_of_two(lengths: Iterable[int]) -> int:
    """Returns the smallest power of two that is at least the largest length."""
    return 1 << (max(1, *lengths, 1) - 1).bit_length()


class Columns(TypedDict):
    """Texts, or pairs of texts, as a model takes them, and their tokens.

    Offsets are a token's characters, [start, end), in the text as it was given, and
    words are counted from 0. In a pair's second text both begin again. [CLS], [SEP]
    and padding have (0, 0) and -1. `tokens` has no padding, and no white space next to
    a token that takes it up, such as RoBERTa's `<mask>`.
    """

    input_ids: Int32[np.ndarray, "texts length"]
    input_mask: Int32[np.ndarray, "texts length"]  # 1 for a token, 0 for padding
    segment_ids: Int32[np.ndarray, "texts length"]  # 1 for a pair's second text
    offsets: Int32[np.ndarray, "texts length 2"]
    word_ids: Int32[np.ndarray, "texts length"]
    tokens: list[list[str]]


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    texts_b: Sequence[str] | None,
    limit: int,
) -> list[Encoding]:
    """Encodes texts, or pairs of texts, with [CLS] and [SEP].

    Args:
      limit: Number of the model's positions.

    Raises:
      ValueError: not as many second texts.
      UserError: a text has more tokens than `limit`.
    """
    if texts_b is not None and len(texts_b) != len(texts):
        raise ValueError(f"{len(texts)} texts, but {len(texts_b)} second ones")
    pairs = texts if texts_b is None else list(zip(texts, texts_b, strict=True))
    tokenized = tokenizer.encode_batch(pairs)
    for index, encoding in enumerate(tokenized):
        if len(encoding.ids) > limit:
            raise UserError(
                f"text {index}: {len(encoding.ids)} tokens with [CLS] and [SEP]; "
                f"the model has {limit} positions"
            )
    return tokenized


def batch_columns(encodings: Sequence[Encoding], pad: int) -> Columns:
    """Returns all of the texts together, as long as the longest.

    Args:
      pad: Id of [PAD].
    """
    length = max(len(encoding.ids) for encoding in encodings)
    offsets = np.zeros((len(encodings), length, 2), np.int32)
    words = np.full((len(encodings), length), -1, np.int32)
    for row, encoding in enumerate(encodings):
        end = len(encoding.ids)
        offsets[row, :end] = encoding.offsets
        words[row, :end] = [-1 if word is None else word for word in encoding.word_ids]
    table = Rows([*map(text_feature, encodings)], {"input_ids": pad})
    arrays = table.batch(np.arange(len(encodings)), length)
    tokens = [[token.strip() or token for token in x.tokens] for x in encodings]
    return Columns(
        input_ids=arrays["input_ids"],
        input_mask=arrays["input_mask"],
        segment_ids=arrays["segment_ids"],
        offsets=offsets,
        word_ids=words,
        tokens=tokens,
    )


def text_feature(encoding: Encoding, info: Any = None) -> Feature:
    """Returns a text as a sequence for a model."""
    columns = {"input_ids": encoding.ids, "segment_ids": encoding.type_ids}
    arrays = {name: np.array(ids, np.int32) for name, ids in columns.items()}
    return Feature(0, arrays, info)
