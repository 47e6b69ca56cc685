"""Text vectors: losses against sentence-transformers, negatives of the whole batch,
rows, scores and predictions."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.data.rows import Rows
from bert_jax.models.layers import pool_tokens
from bert_jax.tasks import create_task
from bert_jax.tasks.embeddings import losses
from bert_jax.training import sharding, step
from bert_jax.training.step import init_state
from bert_jax.training.transforms import cached
from configs.finetune import embeddings
from tests.close import assert_close
from tests.micro import answerer, error_line, initial_params, read_rows, write_rows
from tests.tasks.small_texts import shrunk, write_predictions

PAIRS = [("a b c", "c d"), ("good", "good a b"), ("e f g h", "h"), ("bad", "d d bad")]


@pytest.fixture
def make(tmp_path):
    def task(rows, **fields):
        config = shrunk(embeddings.get_config("tiny"), tmp_path)
        path = write_rows(tmp_path / "rows.jsonl", rows)
        config.task.train_file = config.task.dev_file = path
        config.task.update(fields)
        return create_task(config)

    return task


def pairs(**fields):
    return [{"text": a, "text_b": b, **fields} for a, b in PAIRS]


def batch_of(task, size):
    rows = Rows(task.encode_examples("train"), task.padding)
    return rows.batch(np.arange(size), task.max_seq_length)


def test_losses_are_those_of_sentence_transformers():
    """Version 6.2.0, in float64: MultipleNegativesRankingLoss in both directions with a
    scale of 20, CoSENTLoss, CosineSimilarityLoss, TripletLoss of cosines."""
    rng = np.random.default_rng(0)
    vectors = jnp.asarray(rng.normal(size=(6, 3, 5)), jnp.float32)
    scores = jnp.asarray(rng.integers(0, 4, size=6) / 4, jnp.float32)
    weights, ids = jnp.ones(6), jnp.arange(18).reshape(6, 3, 1)

    @jax.jit
    def all_losses(vectors):
        return [
            losses.info_nce(vectors[:, :2], weights, 0.05, ids[:, :2]),
            losses.info_nce(vectors, weights, 0.05, ids),
            losses.cosent_loss(vectors[:, :2], weights, scores, 0.05),
            losses.squared_error(vectors[:, :2], weights, scores),
            losses.triplet_loss(vectors, weights, 0.5),
        ]

    found = all_losses(vectors)
    expected = [10.122700591570855, 11.653536177038639, 16.997117179411234]
    expected += [0.5274899329881038, 0.7423521213174576]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_rows_that_fill_a_batch_are_no_negatives():
    rng = np.random.default_rng(1)
    vectors = jnp.asarray(rng.normal(size=(6, 3, 5)), jnp.float32)
    scores, weights = jnp.arange(6) / 5, jnp.array([1, 1, 1, 1, 0, 0], jnp.float32)
    ids = jnp.arange(12).reshape(4, 3, 1)  # and empty rows, all equal
    ids = jnp.concatenate([ids, jnp.zeros((2, 3, 1), int)])

    @jax.jit
    @jax.jacobian
    def slopes(vectors, weights, scores):
        return jnp.stack(
            [
                losses.info_nce(vectors, weights, 0.05, ids[: len(vectors)]),
                losses.cosent_loss(vectors, weights, scores, 0.05),
                losses.squared_error(vectors[:, :2], weights, scores),
                losses.triplet_loss(vectors, weights, 0.5),
            ]
        )

    filled = slopes(vectors, weights, scores)
    alone = slopes(vectors[:4], jnp.ones(4), scores[:4])
    np.testing.assert_allclose(filled[:, :4], alone, rtol=1e-5, atol=1e-6)
    assert not np.any(filled[:, 4:]) and np.all(np.any(alone != 0, axis=(1, 2, 3)))


def test_no_text_is_a_negative_of_an_equal_one():
    """Against a loop. Texts are numbers: equal partners, texts, and a text that is a
    partner or a negative elsewhere."""
    texts = [(1, 2, 9), (3, 2, 1), (4, 5, 2), (4, 6, 8), (5, 7, 10), (11, 12, 11)]
    vectors = np.random.default_rng(2).normal(size=(6, 3, 4)).astype(np.float32)
    q, p, n = np.moveaxis(vectors / np.linalg.norm(vectors, axis=2)[..., None], 1, 0)
    expected = []
    for i, (a, b, _) in enumerate(texts):
        other = [j for j, (c, d, _) in enumerate(texts) if not {a, b} & {c, d}]
        hard = [j for j, (*_, e) in enumerate(texts) if e not in (a, b)]
        there = [q[i] @ x for x in (p[i], *p[other], *n[hard])]
        back = [p[i] @ q[j] for j in (i, *other)]
        expected += [
            np.log(np.exp(np.array(x) * 20).sum()) - 20 * x[0] for x in (there, back)
        ]
    ids = jnp.asarray(texts)[..., None]
    found = losses.info_nce(jnp.asarray(vectors), jnp.ones(6), 0.05, ids)
    assert found == pytest.approx(np.mean(expected), rel=1e-5)


def test_loss_of_several_sizes_is_their_sum(make):
    """As sentence-transformers' MatryoshkaLoss 6.2.0, in float64."""
    vectors = np.random.default_rng(0).normal(size=(6, 3, 5)).astype(np.float32)
    task = make(pairs(), dimensions=(2, 5))
    task.examples("train")  # which set the loss
    ids = jnp.arange(12).reshape(6, 2, 1)
    batch = {"row_weights": jnp.ones(6), "input_ids": ids}
    found = task.batch_loss({"vectors": jnp.asarray(vectors[:, :2])}, batch)
    assert found["embedding_loss"] / 6 == pytest.approx(35.293028274555375, rel=1e-6)


@pytest.mark.slow
def test_negatives_are_those_of_the_whole_batch(make):
    """One micro-batch, and two on four devices."""
    task = make(pairs() * 2, dimensions=(4, 16))
    batch = batch_of(task, 8)
    state = init_state(initial_params(task.init_params), optax.sgd(1.0))

    def taken(micro_batches, devices):
        mesh = sharding.make_mesh(task.config, (), jax.devices()[:devices])
        gradient = cached(
            lambda params, rows, key: task.vectors(params, rows, None),
            *(task.batch_loss, task.loss_weights, micro_batches),
        )
        function = functools.partial(
            step.train_step, gradient=gradient, optimizer=optax.sgd(1.0)
        )
        with sharding.activate_mesh(mesh):
            placed = sharding.place_batch(batch, mesh, 8)
            return jax.jit(function)(state, placed, jax.random.key(0), 1.0)

    after, metrics = taken(1, 1)
    assert metrics["loss"] > 0.5
    other, found = taken(2, 4)
    np.testing.assert_allclose(found["loss"], metrics["loss"], rtol=1e-6)
    actual, expected = (
        jax.tree.map(jnp.subtract, end.params, state.params) for end in (other, after)
    )
    assert_close(actual, expected)


def test_pooling_by_hand():
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(3, 5, 4)).astype(np.float32)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
    cls, whole, inner = (
        pool_tokens(jnp.asarray(hidden), jnp.asarray(mask), name)
        for name in ("cls", "mean_all", "mean")
    )
    np.testing.assert_array_equal(cls, hidden[:, 0])
    expected = [
        row[:count].mean(0) for row, count in zip(hidden, (5, 3, 2), strict=True)
    ]
    np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-6)
    expected = [hidden[0, 1:4].mean(0), hidden[1, 1], np.zeros(4)]  # an empty text
    np.testing.assert_allclose(inner, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_text_alone_is_its_own_partner_with_another_dropout(make):
    task = make([{"text": text} for text, _ in PAIRS])
    batch = jax.tree.map(jnp.asarray, batch_of(task, 4))
    assert batch["input_ids"].shape[1] == 2
    np.testing.assert_array_equal(batch["input_ids"][:, 0], batch["input_ids"][:, 1])
    params = initial_params(task.init_params)
    found = jax.jit(task.vectors)(params, batch, jax.random.key(0))["vectors"]
    assert np.abs(found[:, 0] - found[:, 1]).max() > 1e-2
    assert task.definition.scores(task.examples("dev"), [np.asarray(found[0])]) == {}


def test_scores_and_predictions(make, tmp_path):
    scored = zip(pairs(), (0, 3, 1, 2), strict=True)
    task = make([{**row, "score": score} for row, score in scored], max_score=3.0)
    params = initial_params(task.init_params)
    examples = task.examples("dev")
    assert [row["score"] for row in examples] == [0, 1, 1 / 3, 2 / 3]
    assert task.main_score == "spearman"
    vectors = answerer(task, params).start(examples)
    similarities = [answer["similarity"] for answer in vectors()]
    answers = [np.array([[1.0, 0], [np.cos(x), np.sin(x)]]) for x in (3, 0.1, 2, 1)]
    scores = task.definition.scores(examples, answers)
    assert scores["spearman"] == pytest.approx(1.0) and scores["pearson"] < 1.0
    unscored = [{"texts": row["texts"]} for row in examples]
    expected = {"mrr@10": pytest.approx(np.mean([1, 1 / 2, 1 / 3, 1 / 4]))}
    assert task.definition.scores(unscored, answers) == expected
    alone, pair = answerer(task, params).answer(
        [{"text": "a b c"}, {"text": "a b c", "text_b": "c d"}]
    )
    assert np.linalg.norm(alone["vector"]) == pytest.approx(1.0, rel=1e-6)
    assert pair["similarity"] == pytest.approx(similarities[0], rel=1e-5)
    write_predictions(task, tmp_path, "dev", examples, answers)
    assert read_rows(tmp_path / "dev.jsonl")[1]["gold"] == 1.0


def test_dev_is_scored_at_each_size(make):
    rows = [{**row, "score": score} for score, row in enumerate(pairs())]
    task = make(rows, max_score=3.0, dimensions=(2, 5))
    examples, rng = task.examples("dev"), np.random.default_rng(0)
    answers = [rng.normal(size=(2, 8)) for _ in examples]
    found = task.definition.scores(examples, answers)
    task.fill_in({"task.dimensions": ()})
    for size, end in ((2, "_2"), (5, "_5"), (8, "")):
        cut = task.definition.scores(examples, [each[:, :size] for each in answers])
        assert {(name + end, value) for name, value in cut.items()} <= {*found.items()}
    assert len(found) == 6


def test_equal_texts_count_once_and_a_text_is_no_partner_of_itself(make):
    """Random pairs, by sentence-transformers' InformationRetrievalEvaluator 6.2.0."""
    rng = np.random.default_rng(5)
    drawn = [(f"q{rng.integers(9)}", f"p{rng.integers(12)}") for _ in range(30)]
    names = sorted({name for pair in drawn for name in pair})
    of = dict(zip(names, rng.normal(size=(len(names), 4)), strict=True))

    def score(pairs):
        answers = [np.array([of[a], of[b]]) for a, b in pairs]
        examples = [{"texts": pair} for pair in pairs]
        return make([{"text": "a"}]).definition.scores(examples, answers)["mrr@10"]

    assert score(drawn) == pytest.approx(0.41851851851851857)
    of |= {"q0": np.array([1.0, 0]), "q1": np.array([0.9, 0.4]), "p0": np.eye(2)[1]}
    assert score([("q0", "q1"), ("q1", "q0"), ("p0", "p0")]) == 1.0


def test_queries_find_their_documents(make, tmp_path):
    """BEIR's layout."""
    (tmp_path / "qrels").mkdir()
    for name, key, text in (("corpus", "d", "text_b"), ("queries", "q", "text")):
        rows = [{"_id": f"{key}{i}", "text": x[text]} for i, x in enumerate(pairs())]
        rows = [{**row, "title": ""} for row in rows] if key == "d" else rows
        write_rows(tmp_path / f"{name}.jsonl", rows)
    judged = "query-id\tcorpus-id\tscore\nq2\td1\t1\nq0\td0\t2\nq0\td3\t0\n"
    (tmp_path / "qrels" / "test.tsv").write_text(judged)
    source = str(tmp_path / "qrels" / "test.tsv")
    task = make(pairs(), retrieval_file=source)
    assert task.splits == ("dev", "retrieval")
    rows = task.examples("retrieval")
    assert [row["texts"][0] for row in rows[-2:]] == ["e f g h", "a b c"]
    axes = np.eye(4)
    answers = [axes[i][None] for i in (0, 1, 2, 3, 2, 0)]
    found = task.definition.scores(rows, answers)
    # q2 is nearest to d2, and d1 follows d0 among the others.
    assert found["mrr@10"] == pytest.approx((1 / 3 + 1) / 2)
    # A document with the query's own id is left out, as in BEIR's evaluation.
    rows = (tmp_path / "queries.jsonl").read_text()
    (tmp_path / "queries.jsonl").write_text(rows.replace("q2", "d2"))
    (tmp_path / "qrels" / "test.tsv").write_text(judged.replace("q2", "d2"))
    found = task.definition.scores(task.definition.read_rows("retrieval"), answers)
    assert found["mrr@10"] == pytest.approx((1 / 2 + 1) / 2)
    (tmp_path / "queries.jsonl").write_text(rows)
    (tmp_path / "qrels" / "test.tsv").write_text(f"{judged}q9\td1\t1\n")
    other = make(pairs(), retrieval_file=source)
    assert "test.tsv:5: 'q9' is not in" in error_line(other.examples, "retrieval")


SCORED = [row | {"is_duplicate": n % 2} for n, row in enumerate(pairs())]
HUMAN = [row | {"human": n / 4} for n, row in enumerate(pairs())]
NEGATIVES = [{**row, "negative_1": "c", "negative_2": "d"} for row in pairs()]


@pytest.mark.parametrize(
    ("rows", "fields", "said"),
    [
        ([*pairs(), {"text": "a"}], {}, "rows.jsonl:5: a row of texts, but the first"),
        (pairs(score=3), {}, "'score' is 3; it must be a number from 0 to .*=1"),
        (pairs(), {"loss": "cosent"}, "config.task.loss=cosent: .* has pairs; choose"),
        (SCORED, {}, r"'is_duplicate' is not read.*task\.score=is_duplicate reads it"),
        (HUMAN, {}, "the column 'human' is not read"),
        (
            NEGATIVES,
            {"loss": "triplet"},
            "task.loss=triplet: takes one negative, and a row has 2",
        ),
        (
            pairs(),
            {"dimensions": (99,)},
            "each must be from 1 to the size of a vector, 16",
        ),
    ],
)
def test_mistakes_are_one_line(make, rows, fields, said):
    line = error_line(lambda: make(rows, **fields).examples("train"))
    assert re.search(said, line)


def test_columns_that_are_read_and_not(make):
    """Rows with more negatives have them all as candidates."""
    rows = [{**row, "id": "x"} for row in NEGATIVES]
    task = make(rows)
    texts = task.examples("train")[0]["texts"]
    assert texts == (*PAIRS[0], "c", "d") and task.row_shape == (4, 16)
    assert task.notices == {"train: rows whose column 'id' is not read": 4}
    batch = jax.tree.map(jnp.asarray, batch_of(task, 4))
    params = initial_params(task.init_params)
    assert batch["input_ids"].shape[1] == 4
    shared = make([{k: row[k] for k in ("text", "text_b")} for row in rows])
    pairs_alone = jax.tree.map(jnp.asarray, batch_of(shared, 4))
    with_negatives, without = (
        jax.jit(lambda p, b, owner=owner: owner.loss(p, b, None)["embedding_loss"])(
            params, rows
        )
        for owner, rows in ((task, batch), (shared, pairs_alone))
    )
    assert with_negatives > without


def test_columns_of_other_names(make):
    rows = [{"text": "a", "positive": "b", "negative": "c d"}] * 2
    task = make(rows)
    assert task.examples("train")[0]["texts"] == ("a", "b", "c d")
    assert task.row_shape == (3, 16)
    assert task.config.task.loss == ""  # as a run that resumes has it
