"""How many tokens of texts that are too long remain."""

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from bert_jax.data import truncation
from bert_jax.tokenization.byte_level import ByteLevel


def test_head_and_tail_of_512():
    """Sun et al. 2019: the first 128 and the last 382."""
    kept = truncation.truncate_tokens(list(range(1000)), 510, "head_tail")
    assert kept == [*range(128), *range(1000 - 382, 1000)]


@given(st.integers(0, 40), st.integers(0, 40), st.integers(2, 50))
def test_pairs_are_cut_as_google_does(first, second, limit):
    expected = [first, second]
    while sum(expected) > limit:
        expected[0 if expected[0] > expected[1] else 1] -= 1
    assert truncation.pair_lengths(first, second, limit) == tuple(expected)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(2, 50))
def test_pairs_of_byte_level_pieces_are_cut_as_tokenizers_does(first, second, limit):
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(limit, strategy="longest_first")
    kept = tokenizer.encode("a " * first, "b " * second).ids
    odd = ByteLevel.odd_to_longer
    lengths = truncation.pair_lengths(first, second, limit, odd)
    assert lengths == (kept.count(0), kept.count(1))
