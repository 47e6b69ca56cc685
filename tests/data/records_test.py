"""Records: TFDS reads the ones written here, and the other way around."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tensorflow_datasets.proto import tf_example_pb2

from bert_jax.data import records

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=40)
FEATURES = records.record_features()


def serialize(tokens_a, tokens_b, is_random_next):
    """Both cut from one document, with ids before, between and behind them."""
    ids = records.encode_varints(np.array([3, *tokens_a, 300, *tokens_b, 0], np.int32))
    middle = 2 + len(tokens_a)
    a = ids.part(1, middle - 1)
    b = ids.part(middle, middle + len(tokens_b))
    return records.serialize_pair(a, b, is_random_next)


def in_order(record):
    """The same message with its fields sorted. TFDS leaves them in hash order."""
    example = tf_example_pb2.Example.FromString(record)
    return example.SerializeToString(deterministic=True)


@given(IDS, IDS, st.booleans())
@example([127, 128, 2**14 - 1, 2**14, 2**21, 2**28 - 1, 2**28, 2**31 - 1], [0], True)
@example([30521] * 5463, [], False)  # 16,390 bytes: the length takes three
@settings(max_examples=100, deadline=None)
def test_bytes_are_those_of_tfds(tokens_a, tokens_b, is_random_next):
    ours = serialize(tokens_a, tokens_b, is_random_next)
    theirs = FEATURES.serialize_example(
        {"tokens_a": tokens_a, "tokens_b": tokens_b, "is_random_next": is_random_next}
    )
    assert ours == in_order(theirs)
    read = FEATURES.deserialize_example_np(ours)
    assert list(read["tokens_a"]) == tokens_a
    assert list(read["tokens_b"]) == tokens_b
    assert read["is_random_next"] == is_random_next
    pairs = records.parse_records([theirs, ours])
    assert pairs.tokens.dtype == np.int32
    assert pairs.tokens.tolist() == 2 * (tokens_a + tokens_b)
    assert pairs.lengths.tolist() == 2 * [[len(tokens_a), len(tokens_b)]]
    assert pairs.is_random_next.tolist() == 2 * [is_random_next]


def test_records_without_any_are_no_pairs():
    pairs = records.parse_records([])
    assert [array.shape for array in pairs] == [(0,), (0, 2), (0,)]
