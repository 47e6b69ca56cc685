"""Vectors of texts for scikit-learn, and few texts of each class."""

import pickle

import numpy as np
import pytest
from sklearn import linear_model, pipeline

import bert_jax
from bert_jax.estimator import BertFewShot, BertVectors, vectors
from tests.estimator.last_words import NO_DROPOUT, rows
from tests.micro import error_line

pytestmark = pytest.mark.usefixtures("one_device")


def test_vectors_are_a_transformer(plain):
    texts = [row["text"] for row in rows(40)]
    model = BertVectors(f"{plain}", layer=-1).fit(texts)
    found = model.transform(texts)
    np.testing.assert_array_equal(found, bert_jax.load(plain).sentences(texts, -1))
    assert len(model.get_feature_names_out()) == found.shape[1]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(texts), found)
    small = BertVectors(f"{plain}", layer=-1, size=4)
    labels = [row["label"] for row in rows(40)]
    model = pipeline.make_pipeline(small, linear_model.LogisticRegression())
    assert model.fit(texts, labels).score(texts, labels) >= 0.5
    assert model[0].transform(texts[:3]).shape == (3, 4)


def test_pairs_of_labels():
    """Every text has as many partners of its class as of others, and is none of them
    unless it is alone."""
    texts, labels = [*"abcde"], np.array([0, 0, 1, 1, 2])
    rows = vectors.label_pairs(texts, labels, 3, seed=0)
    assert len(rows) == 5 * 2 * 3
    of = dict(zip(texts, labels.tolist(), strict=True))
    for row in rows:
        same = of[row["text"]] == of[row["text_b"]]
        assert row["score"] == float(same)
        assert row["text"] != row["text_b"] or row["text"] == "e"
    assert {x["text_b"] for x in rows if x["text"] == "a" and not x["score"]} <= {
        *"cde"
    }
    assert vectors.label_pairs(texts, labels, 3, seed=1) != rows


@pytest.mark.slow
def test_few_texts_of_each_class(plain):
    """Tuned vectors tell apart what the untuned ones of random words do not."""
    texts = [row["text"] for row in rows(60)]
    names = [f"class {row['label']}" for row in rows(60)]
    given = {"learning_rate": 1e-2, "fields": NO_DROPOUT}
    few = BertFewShot(f"{plain}", max_seq_length=16, pairs_per_text=10, **given)
    few.fit(texts[:16], names[:16])
    assert few.score(texts[16:], names[16:]) == 1.0
    untuned = BertVectors(f"{plain}", layer=-1).fit(texts)
    head = linear_model.LogisticRegression()
    head.fit(untuned.transform(texts[:16]), names[:16])
    assert head.score(untuned.transform(texts[16:]), names[16:]) < 1.0
    shares = few.predict_proba(texts)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-6)
    again = pickle.loads(pickle.dumps(few))
    np.testing.assert_array_equal(again.predict(texts), few.predict(texts))
    model = few.model_
    del few.model_, again  # its folder lives as long as the model
    assert model.predict(["a dog"])[0]["vector"]
    assert "one class" in error_line(few.fit, texts, ["x"] * 60, error=ValueError)
