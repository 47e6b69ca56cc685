"""A vocabulary: the sample of a corpus on which it is trained, and the training."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import tokenization
from bert_jax.data import chunks, prepare
from bert_jax.tokenization.wordpiece import WORDPIECE
from tests.micro import error_line
from tests.runs import LIMIT


@given(st.lists(st.integers(1, 50)), st.integers(0, 400), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_vocabulary_has_the_first_ranks_that_fit(sizes, budget, seed):
    documents = [(index, "x" * size) for index, size in enumerate(sizes)]
    kept, total = [], 0
    for index, text in sorted(
        documents, key=lambda d: chunks.keyed_hash(seed, "vocabulary", d[0])
    ):
        total += len(text)
        if total > budget:
            break
        kept.append((index, text))
    expected = [text for _, text in sorted(kept)]
    texts = [text for _, text in documents]
    assert prepare.sample_documents(texts, budget, seed) == expected


WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "catalogue", "of", "cats"]
DOCUMENTS = [" ".join(random.Random(i).choices(WORDS, k=50)) for i in range(20)]


@pytest.mark.parametrize(
    ("size", "special"),
    [(120, (0, 1, 2, 3, 4)), (10_000, (0, 100, 101, 102, 103))],
)
def test_trained_vocabulary(size, special, tmp_path):
    tokenizer = WORDPIECE.train(DOCUMENTS, size, lowercase=True)
    assert tokenizer.get_vocab_size() == size
    assert tokenization.special_ids(tokenizer)[:5] == special
    tokens = tokenizer.encode("Cats [MASK]").tokens
    assert tokens == ["[CLS]", "cats", "[MASK]", "[SEP]"]
    # The text is too small for that many tokens.
    assert tokenizer.id_to_token(size - 1).startswith("[unused")
    tokenization.save_tokenizer(tokenizer, tmp_path)
    assert len((tmp_path / "vocab.txt").read_text().splitlines()) == size
    again = WORDPIECE.train(DOCUMENTS, size, lowercase=True)
    assert again.to_str() == tokenizer.to_str()


def test_small_vocabulary_keeps_the_frequent_characters():
    tokenizer = WORDPIECE.train(DOCUMENTS, 30, lowercase=True)
    pieces = tokenizer.get_vocab()
    assert len(pieces) == 30
    assert {"t", "a", "##t", "##a"} <= pieces.keys()
    assert "g" not in pieces
    line = error_line(WORDPIECE.train, DOCUMENTS, 6, lowercase=True)
    assert "raise tokenizer" in line


TRAIN = """
import hashlib, sys
from bert_jax.tokenization.wordpiece import WORDPIECE
documents = [open(path, encoding="utf-8-sig").read() for path in sys.argv[1:]]
tokenizer = WORDPIECE.train(documents, 3000, lowercase=True)
print(hashlib.sha256(tokenizer.to_str().encode()).hexdigest())
"""


@pytest.mark.slow
def test_training_is_the_same_in_every_process(shared_data):
    books = ("austen-emma.txt", "wells-time-machine.txt")
    paths = [str(shared_data(f"corpus/gutenberg/{name}")) for name in books]
    command = [sys.executable, "-c", TRAIN, *paths]
    root = Path(tokenization.__file__).parents[2]
    runs = {subprocess.check_output(command, cwd=root, timeout=LIMIT) for _ in range(2)}
    assert len(runs) == 1


def test_accents_may_be_kept_in_lower_case():
    """Korean syllables stay whole, and é is no e."""
    texts = ["Café 사과 배 café", "사과 나무 Élan"] * 5
    kept = WORDPIECE.train(texts, 60, True, strip_accents=False)
    assert kept.encode("CAFÉ 사과", add_special_tokens=False).tokens == ["café", "사과"]
    stripped = WORDPIECE.train(texts, 60, True)
    assert "사과" not in stripped.get_vocab() and "cafe" in stripped.get_vocab()
    for rules in (True, False), (False, True), (False, False):
        assert not tokenization.build_tokenizer(
            list(kept.get_vocab()), *rules
        ).normalizer.strip_accents
