"""Sources by weight: how often each record is seen, and that nothing else changes."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.config import configuration
from bert_jax.config.configuration import check_config
from bert_jax.data import chunks, loader
from bert_jax.data.loader import SourceMixture
from tests.data.preparing import prepared, read
from tests.micro import error_line, write_rows


def drawn(found, count, seed=0):
    """The first so many (record, epoch), in the order of places."""
    place = np.arange(count)
    record, epoch = found.records(place % found.size, place // found.size)
    return list(zip(record.tolist(), epoch.tolist(), strict=True))


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.sampled_from([0.1, 0.5, 1.0, 1.5, 2.0, 3.3])),
        min_size=1,
        max_size=4,
    ).filter(lambda sources: any(rows for rows, _ in sources))
)
def test_mix_reads_each_source_by_its_weight(sources):
    rows, weights = zip(*sources, strict=True)
    found = SourceMixture(rows, weights, 7)
    passes = 3
    seen = drawn(found, passes * found.size)
    assert max(Counter(seen).values()) == 1  # never twice in an epoch
    first = 0
    for count, weight in sources:
        own = Counter(record for record, _ in seen if first <= record < first + count)
        assert sum(own.values()) == passes * (count and max(1, round(count * weight)))
        if count:
            times = {own[record] for record in range(first, first + count)}
            assert max(times) - min(times) <= 1  # all before any comes again
        first += count
    assert {record for record, _ in seen} <= set(range(first))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three sources of documents that name their source in every sentence."""
    folder = tmp_path_factory.mktemp("sources")
    for name, documents in (("red", 12), ("green", 20), ("blue", 7)):
        texts = (
            " ".join(f"{name} is {n} at {k}." for k in range(8 + n))
            for n in range(documents)
        )
        write_rows(folder / f"{name}.jsonl", [{"text": text} for text in texts])
    return folder


@pytest.fixture
def config(folder):
    """Of data that all tests prepare alike."""
    config = configuration.with_defaults()
    names = ("red", "green", "blue")
    config.corpus.sources = tuple(f"jsonl:{folder}/{name}.jsonl" for name in names)
    config.corpus.update(data_dir=str(folder / "data"), weights=(2.0, 0.5, 1))
    config.corpus.update(max_seq_length=24, dev_fraction=0.1)
    config.masking.max_predictions_per_seq = 4
    config.tokenizer.vocab_size = 120
    config.train.batch_size = 16
    return config


def sources_of(tokenizer, ids):
    return {tokenizer.id_to_token(int(i)) for i in ids} & {"red", "green", "blue"}


@pytest.mark.slow
def test_rows_are_in_the_order_of_their_sources(config, tmp_path, monkeypatch):
    config.corpus.data_dir = str(tmp_path / "data")
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1500)  # chunks have several sources
    data = prepared(config, 24)
    sources = data.table("train")["source"].values.tolist()
    assert sources == sorted(sources) and {*sources} == {0, 1, 2}
    for source, (tokens_a, *_) in zip(sources, read(data.folder, "train"), strict=True):
        name = ("red", "green", "blue")[source]
        assert sources_of(data.tokenizer, tokens_a) <= {name}


def test_weights_are_the_loaders_alone(config):
    folder = prepared(config, 24).folder
    for weights in ((1.0, 1.0, 9.0), ()):
        config.corpus.weights = weights
        assert prepared(config, 24).folder == folder


def test_mix_weights_that_are_bad(config):
    config.corpus.weights = (1.0,)
    line = error_line(check_config, config)
    assert re.search(r"corpus\.weights=.*one for each of the 3", line)


def test_mixture_of_each_phase(config):
    """A source of weight 0 is left out, and other weights begin another order."""
    config.train.num_steps, names = 60, ("red", "green", "blue")
    config.corpus.nsp, config.masking.random_fraction = False, 0.0  # one source a row
    first = "steps=20 corpus.weights=(1.0, 0.0, 0.0)"
    config.train.phases = (first, "corpus.weights=(0.0, 1.0, 3.0)", f"{first}")
    check_config(config)
    tokenizer = prepared(config, 24).tokenizer
    known = {tokenizer.token_to_id(name): name for name in names}
    seen = [Counter() for _ in range(3)]
    for step in range(60):
        batch = loader.batch_at(config, step)
        for row in batch["input_ids"]:
            seen[step // 20].update({known[i] for i in row.tolist() if i in known})
    assert {*seen[0]} == {*seen[2]} == {"red"} and {*seen[1]} == {"green", "blue"}
    rows = Counter(prepared(config, 24).table("train")["source"].values.tolist())
    share = seen[1]["blue"] / seen[1].total()
    assert share == pytest.approx(3 * rows[2] / (rows[1] + 3 * rows[2]), abs=0.1)
    one, again = (loader.batch_at(config, step)["input_ids"] for step in (0, 40))
    assert not np.array_equal(one, again)
    config.corpus.weights = (0.0, 0.0, 0.0)
    assert "one must be above 0" in error_line(check_config, config)
