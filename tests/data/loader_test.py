"""Batches are a function of (config, step): whatever ran before, on any host."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import tokenization
from bert_jax.config import configuration
from bert_jax.config.configuration import check_config
from bert_jax.data import chunks, loader
from bert_jax.data.loader import SourceMixture
from bert_jax.tasks.pretraining import Pretraining
from tests.data.preparing import of_corpus, prepared, read, same
from tests.micro import error_line, write_rows


@pytest.fixture(scope="module")
def config(corpus, tmp_path_factory):
    return of_corpus(corpus, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def data(config):
    return prepared(config)


def test_names_shapes_and_types(config):
    batch = loader.batch_at(config, 0)
    assert {name: (rows.shape, rows.dtype.name) for name, rows in batch.items()} == {
        "input_ids": ((16, 32), "int32"),
        "input_mask": ((16, 32), "int32"),
        "segment_ids": ((16, 32), "int32"),
        "masked_lm_positions": ((16, 10), "int32"),
        "masked_lm_ids": ((16, 10), "int32"),
        "masked_lm_weights": ((16, 10), "float32"),
        "next_sentence_labels": ((16,), "int32"),
    }


def test_row_is_cls_a_sep_b_sep(config):
    batch = loader.batch_at(config, 1)
    for ids, mask, segments in zip(
        batch["input_ids"], batch["input_mask"], batch["segment_ids"], strict=True
    ):
        end = int(mask.sum())
        assert (mask[:end] == 1).all() and not ids[end:].any()
        seps = np.flatnonzero(ids[:end] == 3)
        assert ids[0] == 2 and seps[-1] == end - 1
        first = int(np.argmax(segments))
        assert ids[first - 1] == 3
        assert not segments[:first].any() and segments[first:end].all()
        assert not segments[end:].any()


def test_batch_at_is_the_same_whatever_ran_before(config):
    first = loader.batch_at(config, 37)
    for step in (0, 90, 36, 38):
        loader.batch_at(config, step)
    loader._open_dataset.cache_clear()
    assert same(first, loader.batch_at(config, 37))


def test_running_loader_gives_batch_at(config):
    data = loader.RunData(config, None)
    running = data.batches(5, slice(None), config.seed)
    for step in range(5, 12):
        assert same(next(running), loader.batch_at(config, step))
    last = data.batches(98, slice(None), config.seed)
    assert len(list(last)) == 2  # there are 100


@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_hosts_read_their_rows_only(config, data, hosts):
    phase = loader.phases_of(config)[0]
    size = 16 // hosts
    slices = [slice(host * size, (host + 1) * size) for host in range(hosts)]
    parts = [loader.batch_dataset(config, phase, data, rows=s)[23] for s in slices]
    whole = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    assert same(whole, loader.batch_at(config, 23))


@pytest.mark.parametrize("whole_word", [False, True])
def test_model_s_own_special_tokens_are_never_predicted(config, tmp_path, whole_word):
    text = "".join(
        f"{one} saw <e1> {other} </e1> in town .\n"
        for one in ("\nanna", "\nbert", "\ncarl", "\ndora", "\neve")
        for other in ("a dog", "the cat", "two covid tests", "its owl")
    )
    (tmp_path / "text.txt").write_text(text)
    words = sorted({w for w in text.split() if w.isalpha() and w != "covid"})
    pieces = [*tokenization.SPECIAL_TOKENS, ".", *words]
    tokenizer = tokenization.build_tokenizer(pieces, lowercase=True)
    tokenizer.add_special_tokens(["<e1>", "</e1>"])
    tokenizer.add_tokens(["covid"])  # a word like any other
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    own = config.copy_and_resolve_references()
    own.corpus.sources = (f"sentences:{tmp_path / 'text.txt'}",)
    own.corpus.data_dir = str(tmp_path / "data")
    own.tokenizer.vocab_file = str(tmp_path / "tokenizer.json")
    own.masking.masked_lm_prob = 0.8
    own.masking.whole_word = whole_word
    marks, word = [len(pieces), len(pieces) + 1], len(pieces) + 2
    batches = [loader.batch_at(own, step) for step in range(4)]
    assert all(np.isin(marks, batch["input_ids"]).all() for batch in batches)
    predicted = [b["masked_lm_ids"][b["masked_lm_weights"] > 0] for b in batches]
    found = np.concatenate(predicted)
    assert not np.isin(found, marks).any()
    assert word in found


def original_rows(batch):
    """The rows with their masks undone, in a fixed order."""
    ids = batch["input_ids"].copy()
    rows, columns = np.nonzero(batch["masked_lm_weights"])
    places = batch["masked_lm_positions"][rows, columns]
    ids[rows, places] = batch["masked_lm_ids"][rows, columns]
    return [row.tobytes() for row in ids]


def test_epochs_differ_in_order_and_masks_only(config, data):
    count = data.table("train").rows
    config = config.copy_and_resolve_references()
    config.train.batch_size = count
    one, two = loader.batch_at(config, 0), loader.batch_at(config, 1)
    assert original_rows(one) != original_rows(two)
    assert sorted(original_rows(one)) == sorted(original_rows(two))
    found = (b["masked_lm_positions"][np.argsort(original_rows(b))] for b in (one, two))
    assert not np.array_equal(*found)


def test_seeds_differ(config):
    other = config.copy_and_resolve_references()
    other.seed = 1
    assert not same(loader.batch_at(config, 0), loader.batch_at(other, 0))
    # What is held back, and its masks, are the data's: losses compare.
    mine, theirs = (loader.batch_at(c, 0, "dev") for c in (config, other))
    assert same(mine, theirs)
    other.corpus.seed = 1
    assert not same(mine, loader.batch_at(other, 0, "dev"))


def test_dev_counts_every_record_once(config, data):
    phase = loader.phases_of(config)[0]
    count = data.table("dev").rows
    assert count % 16, "the last batch must need filling for this test to tell"
    batches = [
        loader.batch_at(config, step, "dev")
        for step in range(len(loader.batch_dataset(config, phase, data, "dev")))
    ]
    labels = np.concatenate([batch["next_sentence_labels"] for batch in batches])
    weights = np.concatenate([batch["masked_lm_weights"] for batch in batches])
    assert (labels[:count] >= 0).all() and (labels[count:] == -1).all()
    assert weights[:count].any(axis=1).all() and not weights[count:].any()
    assert same(batches[0], loader.batch_at(config, 0, "dev"))


def test_loader_of_two_phases(config):
    config = config.copy_and_resolve_references()
    config.phase2.update(fraction=0.1, max_seq_length=48, max_predictions_per_seq=7)
    assert [p[:5] for p in loader.phases_of(config)] == [
        (0, 90, 16, 32, 10),
        (90, 100, 16, 48, 7),
    ]
    assert loader.batch_at(config, 89)["input_ids"].shape == (16, 32)
    last = loader.batch_at(config, 90)
    assert last["input_ids"].shape == (16, 48)
    assert last["masked_lm_ids"].shape == (16, 7)
    phases = loader.phases_of(config)
    assert loader.find_phase(phases, 100) == phases[1]


def test_second_phase_with_another_batch_size_on_several_hosts(config):
    config = config.copy_and_resolve_references()
    config.model.vocab_size = 60
    config.phase2.update(fraction=0.1, max_seq_length=32, max_predictions_per_seq=10)
    config.phase2.batch_size = 8
    task = Pretraining(config)
    assert [task.phase_at(i).batch_size for i in (0, 89, 90, 100)] == [16, 16, 8, 8]
    assert [(p.batch_size, p.steps) for p in task.phases()] == [(16, 90), (8, 10)]
    hosts = [task.batches(89, slice(8 * i, 8 * i + 8), 0) for i in range(2)]
    for step, size in ((89, 16), (90, 8), (91, 8)):
        parts = [next(host) for host in hosts]
        whole = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
        assert len(whole["input_ids"]) == size
        assert same(whole, loader.batch_at(config, step))


@pytest.mark.parametrize(
    "fields", [{}, {"corpus.packing": True}, {"corpus.weights": (1.5,)}], ids=str
)
def test_second_phase_of_the_same_length_reads_on(config, fields):
    """As one phase would: in its order, with its masks."""
    one = config.copy_and_resolve_references()
    one.update_from_flattened_dict(fields)
    two = one.copy_and_resolve_references()
    two.phase2.fraction, two.phase2.batch_size = 0.5, 16
    two.phase2.max_seq_length = one.corpus.max_seq_length
    two.phase2.max_predictions_per_seq = one.masking.max_predictions_per_seq
    for step in (0, 49, 50, 51, 99):
        assert same(loader.batch_at(two, step), loader.batch_at(one, step))
    two.phase2.batch_size = 32
    pair = [loader.batch_at(one, step)["input_ids"] for step in (52, 53)]
    found = loader.batch_at(two, 51)["input_ids"]
    np.testing.assert_array_equal(found, np.concatenate(pair))


def test_written_out_phases_are_those_of_phase2(config):
    short = config.copy_and_resolve_references()
    short.phase2.update(fraction=0.1, max_seq_length=48, max_predictions_per_seq=7)
    short.phase2.update(batch_size=8, micro_batches=2)
    long = config.copy_and_resolve_references()
    fields = "corpus.max_seq_length=48 masking.max_predictions_per_seq=7"
    fields += " train.batch_size=8 train.micro_batches=2"
    long.train.phases = ("fraction=0.9", f"fraction=0.1 {fields}")
    assert [p[:6] for p in loader.phases_of(long)] == [
        phase[:6] for phase in loader.phases_of(short)
    ]
    for step in (0, 89, 90, 99):
        assert same(loader.batch_at(long, step), loader.batch_at(short, step))


def test_ramp_of_length_batch_and_masks(config):
    """Phases of one length read on, and each has masks of its own, but not in dev."""
    ramp = config.copy_and_resolve_references()
    ramp.train.phases = (
        "steps=20 train.batch_size=8 masking.masked_lm_prob=0.3",
        "steps=10 corpus.max_seq_length=48 train.batch_size=4",
        "steps=30 train.batch_size=32",
        "masking.mask_fraction=0.0 masking.random_fraction=0.0",
    )
    plain = config.copy_and_resolve_references()
    read = [original_rows(loader.batch_at(plain, step)) for step in range(10)]
    found = [original_rows(loader.batch_at(ramp, step)) for step in range(20)]
    for i in range(10):
        assert sorted([*found[2 * i], *found[2 * i + 1]]) == sorted(read[i])
    shapes = [loader.batch_at(ramp, step)["input_ids"].shape for step in (20, 30, 60)]
    assert shapes == [(4, 48), (32, 32), (16, 32)]
    # 20 batches of 8 rows are 10 of 16.
    pair = [loader.batch_at(plain, step)["input_ids"] for step in (10, 11)]
    third = loader.batch_at(ramp, 30)["input_ids"]
    np.testing.assert_array_equal(third, np.concatenate(pair))
    chosen, tokens = np.zeros((2, 20))
    for step in range(20):
        batch = loader.batch_at(ramp, step)
        chosen[step] = batch["masked_lm_weights"].sum()
        tokens[step] = np.maximum(1, np.rint(batch["input_mask"].sum(1) * 0.3)).sum()
    np.testing.assert_array_equal(chosen, tokens)
    last = loader.batch_at(ramp, 99)  # nothing is replaced
    rows, columns = np.nonzero(last["masked_lm_weights"])
    places = last["masked_lm_positions"][rows, columns]
    kept = last["input_ids"][rows, places]
    np.testing.assert_array_equal(kept, last["masked_lm_ids"][rows, columns])
    assert same(loader.batch_at(ramp, 0, "dev"), loader.batch_at(plain, 0, "dev"))
    hosts = [loader.RunData(ramp, None).batches(19, slice(i, i + 8), 0) for i in (0, 8)]
    for step in (19, 20):  # half of each batch
        parts = [next(host) for host in hosts]
        whole = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
        assert same(whole, loader.batch_at(ramp, step))


def test_mix_of_a_later_phase_without_rows_is_refused_first(config, tmp_path):
    (tmp_path / "held_out.txt").write_text("the sea is cold\nthe sea is blue\n")
    mixed = config.copy_and_resolve_references()
    given = (*mixed.corpus.sources, f"sentences:{tmp_path / 'held_out.txt'}")
    mixed.corpus.sources, mixed.corpus.weights = given, (1.0, 1.0)
    mixed.corpus.dev_fraction = 0.8
    mixed.train.phases = ("steps=20", "corpus.weights=(0.0, 1.0)")
    line = error_line(loader.RunData(mixed, None).prepare_all)
    assert "corpus.weights=(0.0, 1.0): no source with a weight above 0" in line


def test_loader_without_nsp(config):
    config = config.copy_and_resolve_references()
    config.corpus.nsp = False
    batch = loader.batch_at(config, 0)
    assert not batch["segment_ids"].any()
    assert (batch["input_ids"] == 3).sum(axis=1).max() == 1


# Sources by weight: how often each record is seen, and that nothing else changes.


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
def mixed(folder):
    """Of data that all tests prepare alike."""
    mixed = configuration.with_defaults()
    names = ("red", "green", "blue")
    mixed.corpus.sources = tuple(f"jsonl:{folder}/{name}.jsonl" for name in names)
    mixed.corpus.update(data_dir=str(folder / "data"), weights=(2.0, 0.5, 1))
    mixed.corpus.update(max_seq_length=24, dev_fraction=0.1)
    mixed.masking.max_predictions_per_seq = 4
    mixed.tokenizer.vocab_size = 120
    mixed.train.batch_size = 16
    return mixed


def sources_of(tokenizer, ids):
    return {tokenizer.id_to_token(int(i)) for i in ids} & {"red", "green", "blue"}


@pytest.mark.slow
def test_rows_are_in_the_order_of_their_sources(mixed, tmp_path, monkeypatch):
    mixed.corpus.data_dir = str(tmp_path / "data")
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1500)  # chunks have several sources
    data = prepared(mixed, 24)
    sources = data.table("train")["source"].values.tolist()
    assert sources == sorted(sources) and {*sources} == {0, 1, 2}
    for source, (tokens_a, *_) in zip(sources, read(data.folder, "train"), strict=True):
        name = ("red", "green", "blue")[source]
        assert sources_of(data.tokenizer, tokens_a) <= {name}


def test_weights_are_the_loaders_alone(mixed):
    folder = prepared(mixed, 24).folder
    for weights in ((1.0, 1.0, 9.0), ()):
        mixed.corpus.weights = weights
        assert prepared(mixed, 24).folder == folder


def test_mix_weights_that_are_bad(mixed):
    mixed.corpus.weights = (1.0,)
    line = error_line(check_config, mixed)
    assert re.search(r"corpus\.weights=.*one for each of the 3", line)


def test_mixture_of_each_phase(mixed):
    """A source of weight 0 is left out, and other weights begin another order."""
    mixed.train.num_steps, names = 60, ("red", "green", "blue")
    mixed.corpus.nsp, mixed.masking.random_fraction = (
        False,
        0.0,
    )  # one source a row
    first = "steps=20 corpus.weights=(1.0, 0.0, 0.0)"
    mixed.train.phases = (first, "corpus.weights=(0.0, 1.0, 3.0)", f"{first}")
    check_config(mixed)
    tokenizer = prepared(mixed, 24).tokenizer
    known = {tokenizer.token_to_id(name): name for name in names}
    seen = [Counter() for _ in range(3)]
    for step in range(60):
        batch = loader.batch_at(mixed, step)
        for row in batch["input_ids"]:
            seen[step // 20].update({known[i] for i in row.tolist() if i in known})
    assert {*seen[0]} == {*seen[2]} == {"red"} and {*seen[1]} == {"green", "blue"}
    rows = Counter(prepared(mixed, 24).table("train")["source"].values.tolist())
    share = seen[1]["blue"] / seen[1].total()
    assert share == pytest.approx(3 * rows[2] / (rows[1] + 3 * rows[2]), abs=0.1)
    one, again = (loader.batch_at(mixed, step)["input_ids"] for step in (0, 40))
    assert not np.array_equal(one, again)
    mixed.corpus.weights = (0.0, 0.0, 0.0)
    assert "one must be above 0" in error_line(check_config, mixed)
