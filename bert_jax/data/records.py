"""A sentence pair as bytes: the tf.train.Example that TFDS writes and reads.

Writes and reads the protocol buffer directly, with TFDS's own classes: TFDS's path
through nested features takes 10 to 40 times as long.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow_datasets as tfds
from jaxtyping import Bool, Int, Int32
from tensorflow_datasets.proto import tf_example_pb2

# The next sentence label where there is no pair.
PADDING_LABEL = -1


class Pairs(NamedTuple):
    """Sentence pairs, without special tokens and without padding."""

    tokens: Int32[np.ndarray, " tokens"]  # A then B of each pair, one after the other
    lengths: Int[np.ndarray, "pairs 2"]  # the numbers of tokens in A and in B
    is_random_next: Bool[np.ndarray, " pairs"]


def features() -> tfds.features.FeaturesDict:
    """The features of a prepared data set."""
    return tfds.features.FeaturesDict(
        {
            "tokens_a": tfds.features.Sequence(np.int32),
            "tokens_b": tfds.features.Sequence(np.int32),
            "is_random_next": np.bool_,
        }
    )


def serialize(
    tokens_a: Iterable[int], tokens_b: Iterable[int], is_random_next: bool
) -> bytes:
    """Writes a pair.

    Args:
      tokens_a: ids, without special tokens.
      tokens_b: the same; empty where there is no second sentence.
      is_random_next: whether B is taken from another document.
    """
    example = tf_example_pb2.Example()
    feature = example.features.feature
    feature["tokens_a"].int64_list.value.extend(tokens_a)
    feature["tokens_b"].int64_list.value.extend(tokens_b)
    feature["is_random_next"].int64_list.value.append(int(is_random_next))
    # Otherwise the order of the fields differs from process to process.
    return example.SerializeToString(deterministic=True)


def parse(records: Sequence[bytes]) -> Pairs:
    """Reads what `serialize` or TFDS wrote."""
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
