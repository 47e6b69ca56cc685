"""Sentence pairs as bytes: the tf.train.Example that TFDS writes and reads.

Writes the protocol buffer's bytes directly, from ids that are encoded a document at a
time, and reads it with TFDS's classes, because TFDS's path through nested features
takes 10 to 40 times as long.
"""

import functools
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from array_record.python.array_record_data_source import ArrayRecordDataSource
from jaxtyping import Bool, Int, Int32

from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path

# The next sentence label where there is no pair.
PADDING_LABEL = -1


class Pairs(NamedTuple):
    """Sentence pairs, without special tokens and without padding."""

    tokens: Int32[np.ndarray, " tokens"]  # A then B of each pair, one after the other
    lengths: Int[np.ndarray, "pairs 2"]  # the numbers of tokens in A and in B
    is_random_next: Bool[np.ndarray, " pairs"]


def record_features() -> Any:
    """Returns the features of a prepared data set, as TFDS has them."""
    import tensorflow_datasets as tfds  # slow, and inference never calls this

    return tfds.features.FeaturesDict(
        {
            "tokens_a": tfds.features.Sequence(np.int32),
            "tokens_b": tfds.features.Sequence(np.int32),
            "is_random_next": np.bool_,
        }
    )


class Varints(NamedTuple):
    """Ids as the protocol buffer has them, of which a record takes any range."""

    data: bytes  # 7 bits of an id to a byte, the lowest first
    starts: array  # where in `data` each id starts, and its end

    def part(self, start: int, stop: int) -> bytes:
        """Returns the bytes of ids start to stop (not included)."""
        return self.data[self.starts[start] : self.starts[stop]]


def encode_varints(ids: Int32[np.ndarray, " tokens"]) -> Varints:
    """Encodes ids, none of them negative."""
    width = max(1, -(-int(ids.max(initial=0)).bit_length() // 7))
    data = np.empty((len(ids), width), np.uint8)
    used = np.ones((len(ids), width), bool)
    sizes = np.ones(len(ids), np.int32)
    rest = ids
    for place in range(width):
        more = rest > 127
        data[:, place] = rest & 127 | more << 7
        used[:, place + 1 :] = more[:, None]
        sizes += more
        rest = rest >> 7
    starts = array("i", [0]) + array("i", np.cumsum(sizes, dtype=np.int32).tobytes())
    return Varints(data[used].tobytes(), starts)


def serialize_pair(tokens_a: bytes, tokens_b: bytes, is_random_next: bool) -> bytes:
    """Writes a pair.

    Args:
      tokens_a: Ids, without special tokens, from `encode_varints`.
      tokens_b: The same, or empty where there is no second sentence.
      is_random_next: Whether B is taken from another document.
    """
    # The names in order, as in protocol buffers' deterministic serialization.
    return _field(
        _feature(b"is_random_next", b"\1" if is_random_next else b"\0")
        + _feature(b"tokens_a", tokens_a)
        + _feature(b"tokens_b", tokens_b)
    )


def _feature(name: bytes, ids: bytes) -> bytes:
    return _opening(name, len(ids)) + ids


@functools.lru_cache(1 << 12)
def _opening(name: bytes, size: int) -> bytes:
    """Returns the bytes of a feature before its last `size` bytes, the ids."""
    ids = bytes(size)
    values = _field(ids) if ids else b""
    # Fields 1 and 2 of a map are its key and its value. 3 of Feature is int64_list.
    whole = _field(_field(name) + _field(_field(values, b"\x1a"), b"\x12"))
    return whole[: len(whole) - size]


def _field(value: bytes, tag: bytes = b"\n") -> bytes:
    """Encodes a field of bytes: its tag (8 times its number, plus 2), length, bytes."""
    size, length = len(value), b""
    while size > 127:
        length += b"%c" % (size & 127 | 128)
        size >>= 7
    return b"%b%b%c%b" % (tag, length, size, value)


def parse_records(records: Sequence[bytes]) -> Pairs:
    """Reads records written by `serialize_pair` or TFDS."""
    from tensorflow_datasets.proto import tf_example_pb2

    tokens = [np.zeros(0, np.int32)]
    lengths = np.zeros((len(records), 2), int)
    is_random_next = np.zeros(len(records), bool)
    for row, record in enumerate(records):
        feature = tf_example_pb2.Example.FromString(record).features.feature
        tokens_a = feature["tokens_a"].int64_list.value
        tokens_b = feature["tokens_b"].int64_list.value
        tokens += np.array(tokens_a, np.int32), np.array(tokens_b, np.int32)
        lengths[row] = len(tokens_a), len(tokens_b)
        is_random_next[row] = feature["is_random_next"].int64_list.value[0]
    return Pairs(np.concatenate(tokens), lengths, is_random_next)


def shard_paths(folder: Path, split: str) -> list[str]:
    """Returns the paths of a split's files, in order.

    Raises:
      UserError: one is missing.
    """
    paths = sorted(map(str, folder.glob(f"*-{split}.array_record-*")))
    if not paths or len(paths) != int(paths[0].rpartition("-")[2]):
        raise UserError(
            f"{folder}: not all files of {split} are there; delete the folder, to "
            "prepare the data again"
        )
    return paths


class Source:
    """The records of shards, by their number."""

    def __init__(self, paths: Sequence[str]):
        self._source = ArrayRecordDataSource(list(paths))

    def __len__(self) -> int:
        return len(self._source)

    def read(self, rows: Sequence[int]) -> Pairs:
        # The reader fails on an empty list.
        return parse_records(self._source.__getitems__(list(rows)) if rows else ())


def source_pairs(report: Mapping[str, Any]) -> list[int]:
    """Returns the pairs of each source in train, which are counted with
    `corpus.weights`.

    Args:
      report: Content of preparation.json.
    """
    train = report["totals"]["train"]
    return [train.get(f"source_{n}_pairs", 0) for n in range(len(report["sources"]))]
