"""Sentence pairs as bytes: the tf.train.Example that TFDS writes and reads.

Uses TFDS's class of the protocol buffer alone, because TFDS's path through nested
features takes 10 to 40 times as long.
"""

import contextlib
import functools
from array import array
from collections.abc import Iterator, Mapping, Sequence
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


def serialize_pair(tokens_a: array, tokens_b: array, is_random_next: bool) -> bytes:
    """Writes a pair.

    Args:
      tokens_a: Ids, without special tokens.
      tokens_b: The same, or empty where there is no second sentence.
      is_random_next: Whether B is taken from another document.
    """
    example = _example()()
    feature = example.features.feature
    feature["is_random_next"].int64_list.value.append(int(is_random_next))
    feature["tokens_a"].int64_list.value.extend(tokens_a)
    feature["tokens_b"].int64_list.value.extend(tokens_b)
    return bytes(example.SerializeToString(deterministic=True))


def parse_records(records: Sequence[bytes]) -> Pairs:
    """Reads records written by `serialize_pair` or TFDS."""
    tokens = [np.zeros(0, np.int32)]
    lengths = np.zeros((len(records), 2), int)
    is_random_next = np.zeros(len(records), bool)
    for row, record in enumerate(records):
        feature = _example().FromString(record).features.feature
        tokens_a = feature["tokens_a"].int64_list.value
        tokens_b = feature["tokens_b"].int64_list.value
        tokens += np.array(tokens_a, np.int32), np.array(tokens_b, np.int32)
        lengths[row] = len(tokens_a), len(tokens_b)
        is_random_next[row] = feature["is_random_next"].int64_list.value[0]
    return Pairs(np.concatenate(tokens), lengths, is_random_next)


@functools.cache
def _example() -> Any:
    """Returns the class of a record."""
    from tensorflow_datasets.proto import tf_example_pb2  # slow

    return tf_example_pb2.Example


def shard_paths(folder: Path, split: str) -> list[str]:
    """Returns the paths of a split's files, in order.

    Raises:
      UserError: one is missing.
    """
    paths = sorted(map(str, folder.glob(f"*-{split}.array_record-*")))
    with _reading(folder):
        if not paths or len(paths) != int(paths[0].rpartition("-")[2]):
            raise RuntimeError(f"not all files of {split} are there")
    return paths


class Source:
    """The records of shards, by their number. Raises UserError if unreadable."""

    def __init__(self, paths: Sequence[str]):
        self._first = paths[0]
        with _reading(self._first):
            self._source = ArrayRecordDataSource(list(paths))

    def __len__(self) -> int:
        return len(self._source)

    def read(self, rows: Sequence[int]) -> Pairs:
        with _reading(self._first):  # the reader fails on an empty list
            return parse_records(self._source.__getitems__(list(rows)) if rows else ())


@contextlib.contextmanager
def _reading(path: Path | str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # ArrayRecord's, of a disk or a bucket
        raise UserError(
            f"{path}: the prepared data cannot be read ({error}); start again, or "
            "delete its folder first to prepare the data again"
        ) from error


def source_key(source: int, name: str) -> str:
    """Returns the name of a source's count in the totals."""
    return f"source_{source}_{name}"


def source_counts(report: Mapping[str, Any], name: str) -> list[int]:
    """Returns the documents or pairs of each source in train, or [] if not counted.

    Args:
      report: Content of preparation.json.
      name: "documents" or "pairs".
    """
    if not report.get("by_source"):
        return []
    train = report["totals"]["train"]
    return [train.get(source_key(n, name), 0) for n in range(len(report["sources"]))]
