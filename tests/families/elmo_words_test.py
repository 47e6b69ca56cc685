"""ELMo's names and answers: which tags are allowed, rows, losses, and no answer."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from micro import answerer, initial_params
from scipy import special

from bert_jax import tasks
from bert_jax.config import configuration
from bert_jax.models import crf
from bert_jax.tasks.ner.scores import find_entities
from tests.tasks.small_squad import gold_answer, squad_row

SIZES = ("model.hidden_size=4", "model.intermediate_size=8", "task.lstm_size=4")
SIZES += ("task.filters=('1:4','2:4')", "task.max_characters=12")
TAGS = ("O", "B-X", "I-X", "B-Y", "I-Y")


@pytest.fixture
def make(tmp_path):
    def task(spec, *fields, lines="Al B-X\nBo I-X\nsaw O\n\nthe O\nLi B-Y\n"):
        (tmp_path / "train.conll").write_text(lines)
        if spec.startswith("ner"):
            fields += (f"task.train_file={tmp_path / 'train.conll'}",)
        own = [f"--config.{field}" for field in (*SIZES, *fields)]
        spec = f"configs/finetune/{spec},model=elmo,recipe=tiny"
        return tasks.create_task(configuration.load_config(spec, own))

    return task


def params_of(task):
    drawn = initial_params(task.init_params)
    return jax.tree.map(lambda x: 5 * x, drawn)


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (["O B-X I-X B-X", "B-Y O"], "BIO"),
        (["O I-X I-X O", "I-X B-X I-Y"], "IOB1"),
        (["B-X E-X O S-Y", "B-X I-X E-X"], "BIOES"),
        (["B-X L-X U-Y"], "BIOES"),
        (["O I-X", "B-X I-X"], "none"),
        (["O O"], "BIO"),
    ],
)
def test_scheme_is_found(tags, scheme):
    assert crf.found_in([line.split() for line in tags]) == scheme


def test_bio_allows_what_conlleval_reads_the_same_way():
    """All sequences of three: those in which every I continues its entity."""
    allowed = crf.allowed(TAGS, "BIO")
    for path in itertools.product(range(len(TAGS)), repeat=3):
        ours = bool(allowed.first[path[0]]) and bool(allowed.last[path[-1]])
        ours &= all(bool(allowed.between[a, b]) for a, b in itertools.pairwise(path))
        names = [TAGS[i] for i in path]
        begun = sum(name[0] == "B" for name in names)
        assert ours == (len(find_entities(names)) == begun)


@pytest.mark.slow
def test_sentence_is_read_and_tagged_whole(make):
    task = make("ner.py:")
    task.resolve()
    assert task.config.task.tag_scheme == "BIO"
    assert task.labels == ("O", "B-X", "B-Y", "I-X")
    features = task.encode(task.examples("train"), "train")
    first = features[0].columns
    assert [list(first[name]) for name in ("tagged", "labels")] == [
        [0, 1, 1, 1, 0],
        [-1, 1, 3, 0, -1],
    ]
    batch = task.make_rows(features).batch(np.arange(3), 8)
    params = params_of(task)
    found = jax.jit(task.logits)(params, batch)
    losses = jax.jit(task.row_losses)(found, batch)
    between, begins, ends = (np.asarray(found[n]) for n in crf.Transitions._fields)
    tags = [[1, 3, 0], [0, 2]]
    for row, gold in enumerate(tags):
        own = np.asarray(found["logits"])[row, 1 : 1 + len(gold)]

        def score(path, own=own):
            chain = sum(between[a, b] for a, b in itertools.pairwise(path))
            return own[np.arange(len(path)), path].sum() + (
                begins[path[0]] + ends[path[-1]] + chain
            )

        every = [score(p) for p in itertools.product(range(4), repeat=len(gold))]
        expected = special.logsumexp(every) - score(gold)
        assert float(losses[row]) == pytest.approx(expected, rel=1e-4)
    assert float(losses[2]) == 0.0
    outputs = jax.jit(task.outputs)(params, batch)
    rows = [{"tags": np.asarray(outputs["tags"])[row]} for row in range(2)]
    answers = task.decode_answers(task.examples("train"), features, rows)
    assert [len(tags) for tags in answers] == [3, 2]
    assert all(tags[0] != "I-X" for tags in answers)
    (empty,) = answerer(task.predictor(), params).answer([{"text": ""}])
    assert empty == {"words": [], "tags": [], "entities": []}


@pytest.mark.parametrize(
    ("spec", "fields", "pairs"),
    [
        ("glue.py:task=mrpc", (), True),
        ("glue.py:task=cola", (), False),
        ("text.py:", ("task.text_b=second",), True),
    ],
)
def test_task_of_pairs_has_a_model_of_pairs(make, spec, fields, pairs):
    assert make(spec, *fields).system.pairs == pairs


def test_entity_goes_on_where_a_long_sentence_is_cut(make, monkeypatch):
    lines = "".join(f"w{i} {'I' if i else 'B'}-X\n" for i in range(20))
    task = make("ner.py:", "task.max_seq_length=8", lines=lines)
    task.resolve()
    features = task.encode(task.examples("train"), "train")
    batch = task.make_rows(features).batch(np.arange(len(features)), 8)
    begins = batch["input_ids"] == task.word_ids(["w0"])[0]
    best = np.where(begins, task.labels.index("B-X"), task.labels.index("I-X"))
    logits = 9.0 * np.eye(len(task.labels), dtype=np.float32)[best]
    zeros = np.zeros_like(logits[0, 0])
    found = {"logits": logits, "between": zeros + zeros[:, None]}
    found = jax.tree.map(jnp.asarray, found | {"first": zeros, "last": zeros})
    monkeypatch.setattr(task, "logits", lambda params, batch: found)
    tags = np.asarray(jax.jit(task.outputs)({}, batch)["tags"])
    answers = task.decode_answers(
        task.examples("train"), features, [{"tags": x} for x in tags]
    )
    assert answers == [["B-X", *["I-X"] * 19]]


def test_uncased_elmo_reads_lower_case_words(make):
    task = make("ner.py:", "tokenizer.lowercase=True", lines="ÉTÉ O\nAl B-X\n中文 O\n")
    task.resolve()
    feature = task.encode(task.examples("train"), "train")[0]
    expected = task.word_ids(["ete", "al", "中文"])
    assert list(feature.columns["input_ids"][1:-1]) == expected


@pytest.mark.slow
def test_answers_are_words_of_the_context(make):
    task = make("squad.py:version=2.0", "task.max_seq_length=16",
                "task.max_query_length=3", "task.doc_stride=4")  # fmt: skip
    context = "Al saw the old-time house in Li Paix near Rome."
    examples = [
        squad_row("0", "Where?", context, [gold_answer("Li Paix", 29)]),
        squad_row("1", "Who is it?", "Nobody", [], impossible=True),
    ]
    features = task.encode(examples, "train")
    ids = features[0].columns["input_ids"]
    assert ids[0] == 1 and list(ids[3:5]) == [2, 1] and ids[-1] == 2
    assert list(features[0].columns["segment_ids"]) == [0] * 4 + [1] * (len(ids) - 4)
    texts = set()
    for feature in features:
        start, end = (feature.columns[f"{x}_positions"] for x in ("start", "end"))
        if start:
            window = feature.info
            first, last = (x - window.first + window.span.start for x in (start, end))
            texts.add(context[window.offsets[first, 0] : window.offsets[last, 1]])
    assert texts == {"Li Paix"}
    batch = task.make_rows(features).batch(np.arange(len(features) + 1), 16)
    params = params_of(task)
    found = jax.jit(task.logits)(params, batch)
    least = np.finfo(np.float32).min
    legal = np.asarray(found["start_logits"]) != least
    assert legal[:, 0].all() and not legal[0, 1:5].any() and legal[0, 5:-1].all()
    assert np.isfinite(jax.jit(task.row_losses)(found, batch)).all()
    nulls = np.asarray(found["start_logits"])[: len(features), 0]
    assert len(set(nulls.tolist())) > 1  # it depends on the texts
    outputs = [{k: np.asarray(v)[i] for k, v in found.items()}
               for i in range(len(features))]  # fmt: skip
    for example, answer in zip(
        examples, task.decode_answers(examples, features, outputs), strict=True
    ):
        for guess in answer.guesses:
            if guess.text:
                assert example["context"][guess.start : guess.end] == guess.text
