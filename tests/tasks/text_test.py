"""One's own texts: labels found, each split read, files, prediction."""

import csv
import re

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from sklearn import metrics, utils

from bert_jax.config import fields
from bert_jax.config.configuration import check_config
from bert_jax.data.tables import ANY, ColumnSpec
from bert_jax.tasks import create_task
from configs.finetune import text
from tests.micro import error_line, initial_params, read_rows
from tests.tasks.small_texts import evaluated, resolved, shrunk, write_predictions

TRAIN = [("a good b", "10"), ("bad", "9"), ("good good", "10"), ("", "-1")]


@pytest.fixture
def config(tmp_path):
    config = shrunk(text.get_config("tiny"), tmp_path)
    config.task.train_file = write(tmp_path / "train.csv", TRAIN)
    return config


def write(path, rows, header=("text", "label")):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def evaluate(task, split):
    """The parameters, the results, and the answer to each example."""
    params = initial_params(task.init_params)
    return params, *evaluated(task, params, split)


def test_labels_are_found_and_kept(config):
    task = resolved(config)
    assert task.config.task.labels == task.labels == ("-1", "9", "10")
    assert config.task.labels == ()  # as it was
    expected = [(0, "a good b", 2), (1, "bad", 1), (2, "good good", 2), (3, "", 0)]
    found = [(x["id"], x["text"], x["label"]) for x in task.examples("train")]
    assert found == expected
    assert not task.examples("dev") and not task.examples("test")
    assert task.splits == ()
    config.task.labels = ("10", "9", "-1")  # named: their order is kept
    assert [x["label"] for x in create_task(config).examples("train")] == [0, 1, 0, 2]


def test_columns_by_number(config, tmp_path):
    """A file without a header, and rows of `predict` too."""
    assert create_task(config).row_columns == ANY
    lines = [("x", "10", "a good b"), ("x", "9", "bad"), ("x", "10", "c")]
    config.task.train_file = write(tmp_path / "train.csv", lines[1:], lines[0])
    config.task.update(text="2", label="1")
    task = resolved(config)
    rows = task.examples("train")
    found = [("x", task.labels[row["label"]], row["text"]) for row in rows]
    assert found == lines
    assert task.row_columns == ColumnSpec(("2",), ("1",))
    assert task.parse_row({"0": "x", "2": "good"})["text"] == "good"
    assert task.parse_row({"text": "bad", "2": "good"})["text"] == "good"
    assert not task.notices
    config.task.label = "label"  # from the run's data, while these rows have none
    assert create_task(config).row_columns == ColumnSpec(("2",))


def test_names_of_numbered_labels(config, tmp_path):
    rows = [("b", "0"), ("a good", "1.0"), ("a good", "1"), ("b", "0.0")]
    config.task.train_file = config.task.dev_file = write(tmp_path / "n.csv", rows)
    config.task.label_names = ("ham", "eggs")  # not in alphabetical order
    task = resolved(config)
    assert task.labels == ("ham", "eggs")
    assert task.config.task.label_names == ("0=ham", "1=eggs")
    expected = [0, 1, 1, 0]
    assert [x["label"] for x in task.examples("train")] == expected
    _, results, _ = evaluate(task, "dev")
    results.write(tmp_path)
    golds = [row["gold"] for row in read_rows(tmp_path / "dev.jsonl")]
    assert golds == [task.labels[index] for index in expected]
    # A later mode reads the recorded config, and no training data.
    recorded = fields.with_values(task.config, {"task.train_file": ""})
    assert [x["label"] for x in create_task(recorded).examples("dev")] == expected


def test_names_of_a_released_model_s_labels(config, tmp_path):
    config.task.dev_file = write(tmp_path / "n.csv", [("a", "1"), ("b", "0")])
    config.task.labels = config.task.label_names = ("neg", "pos")
    assert [x["label"] for x in create_task(config).examples("dev")] == [1, 0]


@pytest.mark.parametrize(
    ("names", "labels"),
    [(("LABEL_0", "LABEL_1"), "10"), (("0", "1"), ("LABEL_1", "LABEL_0"))],
)
def test_unnamed_labels_are_numbers(config, tmp_path, names, labels):
    config.task.dev_file = write(tmp_path / "n.csv", zip("ab", labels, strict=True))
    config.task.labels = names
    assert [x["label"] for x in create_task(config).examples("dev")] == [1, 0]
    config.task.dev_file = write(tmp_path / "n.csv", [("a", "yes")])
    line = error_line(create_task(config).examples, "dev")
    _, _, hint = line.partition("'yes' is not in the training data")
    assert f"task.label_names=\"('yes={names[0]}', ...)" in hint


def test_lists_of_0_and_1(config, tmp_path):
    """A label that no row has is one all the same."""
    rows = [("a", "1,0,0"), ("b", "0,1,0")]
    config.task.kind = "multilabel"
    config.task.train_file = config.task.dev_file = write(tmp_path / "n.csv", rows)
    task = resolved(config)
    assert task.labels == ("0", "1", "2") and len(task.notices) == 1
    assert [x["label"] for x in task.examples("dev")] == [(1, 0, 0), (0, 1, 0)]
    config.task.labels, config.task.label_names = (), ("x", "y", "z")
    task = resolved(config)
    assert task.labels == ("x", "y", "z")


def test_groups_are_held_out_whole(config, tmp_path):
    rows = [(f"a{n} {m}", "xy"[m % 2], n) for n in range(6) for m in range(4)]
    path = write(tmp_path / "g.csv", rows, ("text", "label", "who"))
    config.task.update(train_file=path, group="who", dev_fraction=0.34)
    task = resolved(config)
    parts = [{x["text"].split()[0] for x in task.examples(s)} for s in ("train", "dev")]
    assert [*map(len, parts)] == [4, 2] and not parts[0] & parts[1]


def test_training_reports_rows_that_are_the_same(config, tmp_path):
    config.task.dev_file = write(tmp_path / "d.csv", [("Bad", "9"), ("c", "9")])
    config.task.train_file = write(tmp_path / "t.csv", [*TRAIN, ("bad", "10")])
    task = resolved(config)
    task.training_data()
    assert dict(task.notices) == {
        "dev: texts that are in train too, of 2": 1,
        "train: texts with two labels or more": 1,
    }


def test_rows_have_the_columns_of_the_run(config, tmp_path):
    """Others that happen to be named text or text_b say nothing."""
    other = {"text": "c c", "text_b": "d", "label": "9"}
    config.task.train_file = write(tmp_path / "own.csv", TRAIN, ("review", "label"))
    config.task.text = "review"
    parse = create_task(config).parse_row
    for row in ({"review": "a good b"}, {"review": "a good b", **other}):
        assert parse(row) == {"text": "a good b", "text_b": None}
    assert parse(other) == {"text": "c c", "text_b": "d"}  # no column of the run's
    config.task.text_b = "reply"
    parse = create_task(config).parse_row
    assert parse({"review": "a", "reply": "b", **other}) == {"text": "a", "text_b": "b"}
    wrong = error_line(parse, {"review": "a", "repyl": "b"}, error=ValueError)
    assert '"text_b" is required' in wrong


def test_labels_of_every_split_are_checked_before_training(config, tmp_path):
    config.task.dev_file = write(tmp_path / "d.csv", [("a", "9")])
    config.evaluate.splits = ("dev", "dev_mismatched", "extra")
    task = resolved(config)
    assert task.splits == ("dev",)  # no field names the others
    config.task.extra_file = write(tmp_path / "e.csv", [("a", "8")])
    line = error_line(lambda: resolved(config).splits)
    assert "e.csv:2: label '8' is not in the training" in line


@pytest.mark.slow
def test_test_file_without_labels(config, tmp_path):
    rows = [("good", ""), ("bad", "")]
    config.task.test_file = write(tmp_path / "test.csv", rows)
    task = resolved(config)
    _, results, _ = evaluate(task, "test")
    assert results.scores == {}
    assert not task.notices
    results.write(tmp_path)
    rows = read_rows(tmp_path / "test.jsonl")
    assert [set(row) for row in rows] == [{"index", "text", "label", "scores"}] * 2


@pytest.mark.slow
def test_text_task_of_several_labels(config, tmp_path):
    rows = [("a", "x, y"), ("b", ""), ("c", "z")]
    config.task.kind = "multilabel"
    config.task.train_file = write(tmp_path / "train.csv", rows)
    config.task.dev_file = config.task.train_file
    task = resolved(config)
    assert task.labels == ("x", "y", "z")
    expected = [(1, 1, 0), (0, 0, 0), (0, 0, 1)]
    assert [x["label"] for x in task.examples("train")] == expected
    batch = next(task.batches(0, slice(None), 0))
    assert batch["label"].shape == (32, 3)
    _, results, answers = evaluate(task, "dev")
    results.write(tmp_path)
    rows = read_rows(tmp_path / "dev.jsonl")
    assert [row["gold"] for row in rows] == [["x", "y"], [], ["z"]]
    for row, answer in zip(rows, answers, strict=True):
        found = [*row["scores"].values()]
        np.testing.assert_allclose(found, special.expit(answer), rtol=1e-6)
        assert row["labels"] == [n for n, p in row["scores"].items() if p >= 0.5]


def test_numbers(config, tmp_path, shared_data):
    """KorSTS, on which STS-B's scores are taken."""
    names = {"text": "sentence1", "text_b": "sentence2", "label": "score"}
    path = str(shared_data("korean/korsts-dev.tsv"))
    config.task.update(kind="regression", train_file=path, dev_file=path, **names)
    task = resolved(config)
    assert task.labels == ("score",)
    examples = task.examples("dev")
    assert len(examples) == 1500
    answers = [np.array([5 - example["label"]], np.float32) for example in examples]
    scores = task.definition.scores(examples, answers)
    assert scores == pytest.approx({"pearson": -1, "spearman": -1})
    write_predictions(task, tmp_path, "dev", examples, answers)
    row = read_rows(tmp_path / "dev.jsonl")[7]
    assert row["gold"] == examples[7]["label"]
    assert row["score"] == pytest.approx(5 - examples[7]["label"], abs=1e-6)
    assert isinstance(task.encode(examples[:1], "dev")[0].columns["label"], float)


@pytest.mark.parametrize(
    ("fields", "train", "dev", "said"),
    [
        ({}, TRAIN, ["9", "8"], "d.csv:3: label '8' is not in"),
        ({"kind": "regression"}, TRAIN, ["9", "nine"], "d.csv:3: the label is 'nine'"),
        (
            {"text": "words"},
            TRAIN,
            [],
            "t.csv:1: no column 'words'; there are: text, label",
        ),
        (
            {"label_names": ("a", "b")},
            TRAIN,
            [],
            "2 names, but the training data has 3 labels",
        ),
        ({"group": "label"}, [("a", "")], [], "t.csv:2: the group ('label') is empty"),
    ],
)
def test_file_that_is_wrong(config, tmp_path, fields, train, dev, said):
    config.task.train_file = write(tmp_path / "t.csv", train)
    config.task.dev_file = write(tmp_path / "d.csv", zip("ab", dev, strict=False))
    config.task.update(fields)
    assert said in error_line(lambda: resolved(config).examples("dev"))


NAMES = ("bad", "good", "<&>", "never")


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 200)  # the last class has neither labels nor guesses
    return labels, np.where(rng.random(200) < 0.6, labels, rng.integers(0, 3, 200))


def test_scores_are_those_of_scikit_learn(config, drawn):
    found = metrics.confusion_matrix(*drawn, labels=range(4))
    config.task.labels = NAMES
    labels, guesses = drawn
    examples = [{"label": label} for label in labels]
    definition = create_task(config).definition
    tables = definition.class_tables(examples, list(np.eye(4)[guesses]))
    scores, matrix, _ = tables.split("\n\n")
    each = metrics.precision_recall_fscore_support(
        *drawn, labels=range(4), zero_division=0
    )
    for line, name, *values in zip(scores.splitlines()[2:], NAMES, *each, strict=True):
        cells = re.split(r"\s{2,}", line.strip())
        rounded = [f"{value:.4f}" for value in values[:3]]
        assert cells == [name, *rounded, str(values[3])]
    rows = [line.split()[1:] for line in matrix.splitlines()[2:]]
    assert rows == [[str(n) for n in row] for row in found]


def weighted(config, tmp_path):
    """A task of two classes, a fifth of whose records are held out."""
    rows = [("a" * (n + 1), "xxxy"[n % 4]) for n in range(40)]
    config.task.train_file = write(tmp_path / "classes.csv", [*rows, rows[0]])
    config.task.dev_fraction, config.task.class_weights = 0.2, ("balanced",)
    task = resolved(config)
    return task


def test_dev_is_held_out_of_each_class(config, tmp_path):
    task = weighted(config, tmp_path)
    parts = (task.examples(split) for split in ("dev", "train"))
    dev, train = ([(row["text"], row["label"]) for row in rows] for rows in parts)
    assert len(dev) + len(train) == 41 and not set(dev) & set(train)
    labels = [label for _, label in dev]
    assert labels.count(0) == 6 and labels.count(1) == 2  # from 31 and 10


def test_class_weights_are_those_of_scikit_learn(config, tmp_path):
    task = weighted(config, tmp_path)
    labels = np.array([example["label"] for example in task.examples("train")])
    expected = utils.class_weight.compute_class_weight(
        "balanced", classes=np.unique(labels), y=labels
    )
    batch = {"label": labels, "row_weights": np.ones(len(labels), np.float32)}
    batch["row_weights"][0] = 0  # padding
    arrays = {name: jnp.asarray(column) for name, column in batch.items()}
    found = np.asarray(task.definition.row_weights(arrays))
    np.testing.assert_allclose(found[1:], expected[labels][1:], rtol=1e-6)
    assert found[0] == 0


def loss_of(task, rows):
    """The mean loss of these rows, with their weights, of fixed outputs."""
    definition = task.definition
    features = definition.encode([{"text": "a", **row} for row in rows], "train")
    names = features[0].columns.keys() & {"label", "weight"}
    batch = {n: jnp.asarray([f.columns[n] for f in features]) for n in names}
    batch["row_weights"] = jnp.ones(len(rows))
    logits = jnp.asarray([[0.5 * i, 1.0, -0.25 * i] for i in range(len(rows))])
    weights = definition.row_weights(batch)
    losses = definition.row_losses({"logits": logits}, batch)
    return float(jnp.sum(weights * losses) / jnp.sum(weights))


def test_weights_of_rows_and_of_classes(config, tmp_path):
    """As if a row were there as often, and as torch's CrossEntropyLoss(weight=...)."""
    rows = [("a", "x", "2"), ("b", "y", "0"), ("c", "z", "0.5")]
    header = ("text", "label", "w")
    config.task.train_file = write(tmp_path / "weights.csv", rows, header)
    plain = [loss_of(resolved(config), [{"label": i}]) for i in range(3)]
    # The same outputs as in the batch of three.
    logits = np.array([[0.5 * i, 1.0, -0.25 * i] for i in range(3)])
    each = -special.log_softmax(logits, axis=1)[range(3), range(3)]
    assert plain[0] == pytest.approx(each[0], rel=1e-6)
    config.task.weight = "w"
    task = resolved(config)
    given = [{"label": x["label"], "weight": x["weight"]} for x in task.rows("train")]
    assert [row["weight"] for row in given] == [2.0, 0.0, 0.5]
    numbered = [{**row, "label": i} for i, row in enumerate(given)]
    expected = (2 * each[0] + 0.5 * each[2]) / 2.5
    assert loss_of(task, numbered) == pytest.approx(expected, rel=1e-6)
    config.task.class_weights = ("z=3", "y=0.5")
    expected = (2 * each[0] + 3 * 0.5 * each[2]) / 3.5
    assert loss_of(resolved(config), numbered) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"class_weights": ("q=3",)}, r"'q' is no label; there are 'x', 'y'"),
        ({"weight": "none"}, r"no column 'none'"),
        ({"weight": "text"}, r"csv:2: the weight \('text'\) is 'a'; write a finite"),
        ({"weighted_scores": True}, r"weighted_scores=True: name the weights' column"),
        ({"min_precision": 0.5}, r"min_precision=0\.5: .*calibration=thresholds"),
        (
            {"positive_label": "q"},
            r"=q: must be one of two classes; .* 'x', 'y'",
        ),
    ],
    ids=str,
)
def test_weights_that_are_bad(config, tmp_path, fields, message):
    rows = [("a", "x", "2"), ("b", "y", "-1")]
    header = ("text", "label", "w")
    config.task.train_file = write(tmp_path / "weights.csv", rows, header)
    config.task.update(fields)

    def weigh(config):
        check_config(config)
        task = resolved(config)
        batch = {"row_weights": jnp.ones(2), "label": jnp.arange(2)}
        return task.definition.row_weights(batch), task.examples("train")

    assert re.search(message, error_line(weigh, config))
    config.task.update({"weight": "w", "class_weights": (), "min_precision": 0.0})
    config.task.positive_label = ""
    assert "csv:3: the weight ('w') is '-1'" in error_line(weigh, config)


@pytest.mark.parametrize("chosen", ["", "yes", "a"], ids=["second", "named", "first"])
@pytest.mark.parametrize("reverse", [False, True])
def test_threshold_of_two_classes(config, tmp_path, chosen, reverse):
    """It decides the positive label, by default the second class in order, whatever the
    outputs'."""
    yes, no = ("a", "b") if chosen == "a" else ("yes", "no")
    rows = [("a", yes), ("b", no), ("c", yes), ("d", no), ("e", no)]
    config.task.train_file = config.task.dev_file = write(tmp_path / "t.csv", rows)
    config.task.update(calibration="thresholds", positive_label=chosen)
    config.task.labels = (no, yes) if reverse else (yes, no)
    margins = np.float32([2.0, -1.0, -0.5, -1.5, 1.0])  # of yes
    logits = [np.float32([0.0, m] if reverse else [m, 0.0]) for m in margins]
    for least, expected, given in (
        (0.0, -0.75, [1, 0, 1, 0, 1]),  # F1 0.8 (0.67 for the first alone)
        (0.9, 1.5, [1, 0, 0, 0, 0]),
    ):
        config.task.min_precision = least
        task = resolved(config)
        found = task.definition.fit(task.examples("dev"), logits)
        assert found == {"thresholds": {yes: pytest.approx(expected)}}
        fitted = task.with_fitted(found).definition
        said = [fitted.format_answer({}, x)["label"] for x in logits]
        assert said == [yes if one else no for one in given]
        labels = [1, 0, 1, 0, 0]
        score = fitted.scores(task.examples("dev"), logits)
        assert score["f1"] == pytest.approx(metrics.f1_score(labels, given))
        assert score[f"f1:{yes}"] == score["f1"]
        for name, function in (
            ("average_precision", metrics.average_precision_score),
            ("roc_auc", metrics.roc_auc_score),
        ):
            assert score[name] == pytest.approx(function(labels, margins))
        details = fitted.score_details(task.examples("dev"), logits)
        assert f"fitted on dev: {yes} 0." in details
    config.task.labels = ("yes", "no", "maybe")
    line = error_line(resolved, config)
    assert "is for two classes, of which there are 3" in line
    config.task.update(calibration="none", positive_label="no")
    assert (
        "=no: must be one of two classes; there are 'yes', 'no', 'maybe'"
        in error_line(resolved, config)
    )


def test_temperature_changes_probabilities_and_no_label(config, tmp_path):
    config.task.calibration = "temperature"
    config.task.dev_file = write(tmp_path / "dev.csv", TRAIN * 3)
    task = resolved(config)
    logits = [np.float32([3.0, 0.0, 1.0])] * len(task.examples("dev"))
    before = task.definition.format_answer({}, logits[0])

    def fit(logits):
        return task.with_fitted(task.definition.fit(task.examples("dev"), logits))

    cooled = fit(logits)
    after = cooled.definition.format_answer({}, logits[0])
    assert cooled.fitted["temperature"] > 1  # they were too sure
    expected = special.softmax(logits[0] / cooled.fitted["temperature"])
    np.testing.assert_allclose([*after["scores"].values()], expected, rtol=1e-6)
    assert after["label"] == before["label"] == "-1"
    rows = task.examples("dev")
    said = cooled.definition.score_details(rows, logits)
    assert "\ntemperature 20: is an end of its range" in said
    right = [4 * np.eye(3)[row["label"]] for row in rows]
    said = fit(right).definition.score_details(rows, right)
    assert "\ntemperature 0.05: is an end of its range" in said
    said = fit([*right[:-1], right[0]]).definition.score_details(rows, right)
    assert said.splitlines()[-1].startswith("expected calibration error: ")


def test_thresholds_decide_the_labels(config, tmp_path):
    config.task.update(kind="multilabel", calibration="thresholds")
    config.task.train_file = write(tmp_path / "t.csv", [("a", "x"), ("b", "x,y")] * 2)
    config.task.dev_file = config.task.train_file
    task = resolved(config)
    logits = [np.float32([5.0, -3.0]), np.float32([5.0, -1.0])] * 2
    assert task.definition.guess(logits[1]) == (1, 0)
    baseline = task.definition.baseline_scores(task.examples("dev"))
    task = task.with_fitted(task.definition.fit(task.examples("dev"), logits))
    assert task.fitted["thresholds"]["y"] == pytest.approx(-2.0)
    assert [task.definition.guess(x) for x in logits[:2]] == [(1, 0), (1, 1)]
    assert task.definition.scores(task.examples("dev"), logits)["accuracy"] == 1.0
    assert task.definition.baseline_scores(task.examples("dev")) == baseline
    config.task.labels = ("y", "x")  # the thresholds are the labels', in any order
    turned = resolved(config).with_fitted(task.fitted).definition
    assert [turned.guess(x[::-1]) for x in logits[:2]] == [(0, 1), (1, 1)]


def test_threshold_is_of_the_class_that_it_was_fitted_for(config, tmp_path):
    rows = [("a", "no"), ("b", "yes")]
    config.task.train_file = config.task.dev_file = write(tmp_path / "t.csv", rows)
    config.task.update(calibration="thresholds", positive_label="yes")
    task = resolved(config).with_fitted({"thresholds": {"no": 1.5}})
    for margin, expected in ((2.0, "no"), (1.0, "yes")):
        logits = np.float32([margin, 0.0])
        assert task.definition.format_answer({}, logits)["label"] == expected


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("regression", {"calibration": "temperature"}),
        ("regression", {"calibration": "thresholds"}),
        ("multilabel", {"label_smoothing": 0.1}),
        ("regression", {"teacher_temperature": 1.0}),
    ],
)
def test_text_refuses_what_its_kind_lacks(config, kind, fields):
    config.task.update(kind=kind, **fields)
    line = error_line(create_task, config)
    assert re.search(rf"config.task.{next(iter(fields))}=.*{kind}", line)
