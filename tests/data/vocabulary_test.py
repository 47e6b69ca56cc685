"""The sample of a corpus on which a vocabulary is trained."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data import vocabulary


@given(st.lists(st.integers(1, 50)), st.integers(0, 400), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_first_ranks_that_fit(sizes, budget, seed):
    documents = [(index, "x" * size) for index, size in enumerate(sizes)]
    kept, total = [], 0
    for index, text in sorted(
        documents, key=lambda d: vocabulary.keyed_hash(seed, "vocabulary", d[0])
    ):
        total += len(text)
        if total > budget:
            break
        kept.append((index, text))
    expected = [text for _, text in sorted(kept)]
    assert vocabulary.sample(documents, budget, seed) == expected


def test_every_document_has_the_same_chance():
    documents = [(index, str(index % 10)) for index in range(20_000)]
    kept = vocabulary.sample(documents, 5000, seed=0)
    assert len(kept) == 5000
    for digit in "0123456789":
        assert kept.count(digit) == pytest.approx(500, abs=100)  # deviation 19
