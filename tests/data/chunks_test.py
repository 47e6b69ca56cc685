"""Long documents in chunks: how long, where cut, and what follows for the rows."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import tokenization
from bert_jax.config import configuration
from bert_jax.data import chunks, corpus, prepare
from bert_jax.data.corpus import Document
from tests import runs
from tests.data.preparing import read

VOCABULARY = "vocab/bert-base-uncased-vocab.txt"


def make_config(shared_data, folder, *books):
    config = configuration.with_defaults()
    config.corpus.sources = tuple(f"text:{shared_data(book)}" for book in books)
    config.corpus.data_dir = str(folder / "data")
    config.tokenizer.vocab_file = str(shared_data(VOCABULARY))
    return config


FORMS = st.sampled_from(["sentences", "lines", "wrapped"])
PARAGRAPHS = st.lists(
    st.lists(st.sampled_from(["One is.", "Two are.", "Été? Oui!"]), min_size=1),
    min_size=1,
    max_size=20,
)


@pytest.mark.slow
@given(FORMS, PARAGRAPHS, st.integers(20, 200))
@settings(max_examples=200, deadline=None)
def test_cut_documents_lose_nothing_and_are_no_longer_than_asked(
    form, paragraphs, most
):
    separator = "\n\n" if form == "wrapped" else "\n"
    document = Document(separator.join(map(" ".join, paragraphs)), form)
    found = chunks.cut_document(document, most, "en")
    assert [word for piece in found for word in piece.text.split()] == (
        document.text.split()
    )
    assert [s for piece in found for s in corpus.split_sentences(piece, "en")] == (
        corpus.split_sentences(document, "en")
    )
    for piece in found:
        assert piece.form == form
        # Google's format has no end of a sentence inside of a line.
        if form != "sentences":
            assert len(piece.text.encode()) <= most
    if len(document.text.encode()) <= most:
        assert found == [document]
    assert chunks.cut_document(document, 0, "en") == [document]


@pytest.mark.slow
def test_corpus_of_one_file(shared_data, tmp_path):
    """Through the command line, with each token kept, on one side only."""
    path = shared_data("corpus/gutenberg/wells-war-of-the-worlds.txt")
    out, _ = runs.here(
        *("--config=configs/base.py", "--mode=prepare"),
        f"--config.corpus.sources=text:{path}",
        f"--config.tokenizer.vocab_file={shared_data(VOCABULARY)}",
        *("--config.corpus.nsp=False", "--config.phase2.fraction=0.0"),
        f"--config.corpus.data_dir={tmp_path}/data",
        "--config.corpus.dev_fraction=0.1",
    )
    folder = out.strip().removeprefix("prepared: ")
    written = {split: read(folder, split) for split in ("train", "dev")}
    (book,) = corpus.read_documents((f"text:{path}",), Path())
    tokenizer = tokenization.load(shared_data(VOCABULARY))
    encoded = tokenizer.encode_batch(
        corpus.split_sentences(book, "en"), add_special_tokens=False
    )
    tokens = Counter(token for encoding in encoded for token in encoding.ids)
    found = Counter(int(t) for split in written.values() for a, *_ in split for t in a)
    assert not found - tokens
    # Only the dev sentences that are in train as well ("Yes.") are lost.
    totals = prepare.open_folder(Path(folder)).report["totals"]
    left_out = totals["dev"]["left_out"]
    kept = totals["train"]["sentences"] + totals["dev"]["sentences"]
    assert kept + left_out == sum(1 for encoding in encoded if encoding.ids)
    assert left_out <= (tokens - found).total() < 10 * left_out
    share = sum(len(a) for a, *_ in written["dev"]) / tokens.total()
    assert 0.02 < share < 0.2
