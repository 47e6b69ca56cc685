"""The classifier for scikit-learn, and rows in place of files."""

import pickle
from types import SimpleNamespace

import numpy as np
import pyarrow
import pytest
from sklearn import model_selection, pipeline, preprocessing
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import bert_jax
from bert_jax.convert import weights
from bert_jax.estimator import (
    BertClassifier,
    BertFewShot,
    BertRegressor,
    BertVectors,
)
from bert_jax.registry import FAMILIES
from tests.estimator.last_words import NO_DROPOUT, rows
from tests.micro import error_line, read_rows

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture
def model(plain):
    given = {"fields": {"optimizer.learning_rate": 1e-2, **NO_DROPOUT}}
    given |= {"num_epochs": 6.0, "batch_size": 16, "max_seq_length": 16}
    return BertClassifier(f"{plain}", config="finetune/text:recipe=tiny", **given)


@pytest.fixture
def fitted(monkeypatch):
    """Returns a function that returns the config with which a classifier trains."""

    def fit(config, *_, **__):
        raise StopIteration(config)

    def config_of(model, labels=(0, 1)):
        with pytest.raises(StopIteration) as caught:
            model.fit(["a text"] * len(labels), labels)
        return caught.value.value

    monkeypatch.setattr(bert_jax.api, "fit", fit)
    return config_of


@pytest.mark.slow
def test_classifier_learns_is_pickled_and_searched_over(model, capfd):
    texts = np.array([row["text"] for row in rows(96)])
    labels = [row["label"] for row in rows(96)]
    model.fit(texts, labels)
    assert not any(capfd.readouterr())
    assert model.classes_.tolist() == [3, 10] and model.score(texts, labels) > 0.9
    assert [*model.model_.labels] == ["3", "10"]
    found = model.predict_proba(texts[:5])
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-5)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(texts[:5]), found)
    stripped = preprocessing.FunctionTransformer(lambda x: [y.strip() for y in x])
    steps = pipeline.make_pipeline(stripped, clone(model))
    given = {"cv": [(range(64), range(64, 96))], "refit": False}
    grid = {"bertclassifier__num_epochs": [12]}
    search = model_selection.GridSearchCV(steps, grid, **given)
    assert search.fit(texts, labels).best_score_ > 0.8
    for said, ask, *given in (
        ("text 1: 3 is not a string", model.predict, ["a", 3]),
        ("y contains NaN", clone(model).fit, texts[:3], [0.0, 1.0, np.nan]),
        ("one class", clone(model).fit, texts, np.zeros(96)),
    ):
        assert said in error_line(ask, *given, error=ValueError)


@pytest.mark.slow
def test_several_labels_pairs_and_weights(model, plain):
    """Labels of columns, of which one has no row; texts of two columns."""
    texts = [row["text"] for row in rows(96)]
    y = np.array([["fox" in text, "dog" in text, False] for text in texts]).astype(int)
    pairs = np.array([texts, ["the dog"] * 96]).T
    model.set_params(fields={**model.fields, "optimizer.learning_rate": 2e-2})
    model.fit(pairs, y, sample_weight=np.where(y[:, 0], 1.0, 0.5))
    assert model.classes_.tolist() == [0, 1, 2]
    found = model.predict(pairs)
    assert found.shape == y.shape and (found[:, 0] == y[:, 0]).mean() > 0.9
    shares = model.predict_proba(pairs)
    np.testing.assert_array_equal(found, shares >= 0.5)
    np.testing.assert_allclose(model.predict_log_proba(pairs), np.log(shares))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(pairs), found)
    # Rows of weight 0 do not count: they have the wrong classes.
    labels = np.array(["fox" in text for text in texts])
    wrong, weights = labels.copy(), np.ones(96)
    wrong[::2], weights[::2] = ~labels[::2], 0.0
    dev = (texts, labels)
    fields = {**model.fields, "optimizer.learning_rate": 1e-2}
    one = clone(model).set_params(num_epochs=12, fields=fields)
    one.fit(texts, wrong, sample_weight=weights, dev=dev)
    assert one.score(texts, labels) > 0.9
    for said, fit, *given in (
        ("of at least 0", clone(model).fit, texts, labels, -weights - 1),
        (
            "is not among",
            clone(model).fit,
            texts,
            labels,
            None,
            (texts, ["q"] * 96),
        ),
        ("has 0 and 1", clone(model).fit, texts, 2 * y),
    ):
        assert said in error_line(fit, *given, error=ValueError)


def test_class_weight_is_the_config_s(fitted):
    labels = ["b", "a", "b", "b"]
    for given, expected in (
        ({"b": 5.0}, ("1=5.0",)),
        ("balanced", ("balanced",)),
        (None, ()),
    ):
        config = fitted(BertClassifier(class_weight=given), labels)
        assert tuple(config.task.class_weights) == expected
    model = BertClassifier(class_weight={"c": 1})
    line = error_line(model.fit, ["a"] * 4, labels, error=ValueError)
    assert "'c' is not among y's classes" in line


@pytest.mark.slow
def test_numbers_of_texts(plain):
    """Far from 0 and of any size."""
    texts = [row["text"] for row in rows(96)]
    y = np.array([5000.0 + 300 * ("fox" in text) for text in texts])
    fields = {"optimizer.learning_rate": 1e-2, **NO_DROPOUT}
    model = BertRegressor(f"{plain}", num_epochs=6, batch_size=16, fields=fields)
    model.set_params(config="finetune/text:recipe=tiny", max_seq_length=16)
    assert model.fit(texts, y).score(texts, y) > 0.8
    found = model.predict(texts)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).predict(texts), found
    )
    line = error_line(clone(model).fit, texts, y * np.nan, error=ValueError)
    assert "y contains NaN" in line


@pytest.mark.parametrize(
    ("random_state", "same"), [(None, False), (3, True), (np.int64(3), True)]
)
def test_random_state_is_as_in_scikit_learn(random_state, same, fitted):
    """None is another seed for each fit, an int the same one."""
    model = BertClassifier(random_state=random_state)
    seeds = {fitted(model).seed for _ in range(3)}
    assert seeds == {3} if same else len(seeds) > 1
    again = []
    for _ in range(2):
        np.random.seed(1)  # what None draws from
        again.append(fitted(BertClassifier(random_state=None)).seed)
    assert again[0] == again[1]


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        (["World", "Sports"], ["0=Sports", "1=World"]),
        ([1, 0], ["0=0", "1=1"]),
        ([10.0, 2.0], ["0=2.0", "1=10.0"]),
        (["a=b, 'c'", "d"], ["0=a=b, 'c'", "1=d"]),
        (["", "a"], []),
        (["a ", "a"], []),
    ],
)
def test_report_has_the_names_of_classes(classes, names, fitted):
    config = fitted(BertClassifier(), [classes[i % 2] for i in range(8)])
    assert [*config.task.label_names] == names
    # The larger one, as in scikit-learn's scores.
    assert config.task.positive_label == (names or ["0=0", "1=1"])[1].partition("=")[2]


@pytest.mark.parametrize(
    ("family", "hidden", "rate"),
    [("bert", 256, 5e-4), ("bert", 384, 3e-5), ("mpnet", 768, 3e-5)],
)
def test_recipe_suits_the_weights(family, hidden, rate, fitted, monkeypatch):
    sizes = {"model.hidden_size": hidden}
    source = SimpleNamespace(shape=lambda: sizes, family=FAMILIES[family])
    monkeypatch.setattr(weights, "find_source", lambda _: source)
    config = fitted(BertClassifier())
    assert config.optimizer.learning_rate == rate
    assert config.model.architecture == family
    config = fitted(BertClassifier(config="finetune/text:recipe=large"))
    assert config.optimizer.learning_rate == 3e-5


@pytest.mark.parametrize(
    ("count", "given", "num_steps", "num_epochs"),
    [
        (8, {}, 100, 3.0),
        (97, {"batch_size": 8}, 100, 3.0),
        (1066, {}, 100, 3.0),
        (1067, {}, 0, 3.0),
        (1200, {"fields": {"task.dev_fraction": 0.2}}, 100, 3.0),
        (400, {"fields": {"train.batch_size": 8}}, 0, 3.0),
        (8, {"num_epochs": 2}, 0, 2.0),
        (8, {"fields": {"train.num_epochs": 2.0}}, 0, 2.0),
        (8, {"fields": {"train.num_steps": 7}}, 7, 3.0),
    ],
)
def test_few_texts_take_100_steps(count, given, num_steps, num_epochs, fitted):
    config = fitted(BertClassifier(**given), [i % 2 for i in range(count)])
    assert config.train.num_steps == num_steps
    assert config.train.num_epochs == num_epochs


@pytest.mark.filterwarnings("ignore:Can't test estimator")
@pytest.mark.parametrize(
    "kind", [BertClassifier, BertRegressor, BertVectors, BertFewShot]
)
def test_scikit_learns_conventions_are_kept(kind):
    check_estimator(kind())


@pytest.mark.slow
def test_fit_takes_rows(plain, tmp_path):
    """A list, or a table of Arrow. The second call resumes."""
    fields = {"init_from": plain, "task.max_seq_length": 16, "train.num_steps": 3}
    fields |= NO_DROPOUT
    config = bert_jax.make_config("finetune/text", fields, recipe="tiny")
    table = pyarrow.Table.from_pylist(rows(20))
    for _ in range(2):
        found = bert_jax.fit(config, tmp_path / "run", train=rows(40), dev=table)
    assert found.step == 3 and "accuracy" in found.scores["dev"]
    (path,) = (tmp_path / "run" / "rows").glob("dev-*.jsonl")
    assert read_rows(path) == rows(20)
    (path,) = (tmp_path / "run" / "rows").glob("train-*.jsonl")
    before = path.read_bytes()
    other = {"train": rows(39), "dev": table}
    assert "train_file" in error_line(bert_jax.fit, config, tmp_path / "run", **other)
    assert path.read_bytes() == before
    given = {"train": [1], "error": TypeError}
    line = error_line(bert_jax.fit, config, tmp_path / "other", **given)
    assert "row 0: 1 is neither a dict nor a text" in line
