"""SWAG: official files, features by Google's rules, the loss by hand, prediction."""

import csv
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import special

from bert_jax.errors import UserError
from bert_jax.tasks import create_task
from bert_jax.tasks.finetuning import Finetuning
from bert_jax.tasks.swag import Swag, read_choices
from configs.finetune import swag
from tests.micro import answerer, initial_params
from tests.tasks.small_texts import choice_row, shrunk, write_predictions

EXAMPLES = [
    choice_row("a b c", ("d", "e f g", "h", "a"), 2),
    choice_row("a", ("b", "ab", "c d e f g h a b c d e f", ""), 0),
    choice_row("b a b", ("a", "b", "c", "d"), 2),
]


@pytest.fixture
def config(tmp_path):
    config = shrunk(swag.get_config("tiny"), tmp_path)
    config.task.max_seq_length = 12
    return config


@pytest.fixture
def params(config):
    return initial_params(create_task(config).init_params)


def task_of(config, examples, split="dev"):
    """A task with these records and no file."""

    class Given(Swag):
        def read_rows(self, name):
            return examples if name == split else None

    return Finetuning(Given, config)


def reference(tokenizer, context, ending, limit):
    """convert_single_example of run_classifier.py with its _truncate_seq_pair."""
    a, b = (
        tokenizer.encode(x, add_special_tokens=False).ids for x in (context, ending)
    )
    while len(a) + len(b) > limit - 3:
        (a if len(a) > len(b) else b).pop()
    return [2, *a, 3, *b, 3], [0] * (len(a) + 2) + [1] * (len(b) + 1)


texts = st.text("abcdefgh zé", max_size=24)


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.builds(choice_row, texts, st.tuples(*[texts] * 4), st.integers(0, 3)),
        min_size=1,
    ),
    st.integers(5, 16),
)
def test_features(config, examples, limit):
    config.task.max_seq_length = limit
    task = create_task(config)
    features = task.encode(examples, "train")
    assert [feature.example for feature in features] == list(range(len(examples)))
    for example, (_, columns, _) in zip(examples, features, strict=True):
        assert columns["label"] == example["label"]
        rows = [
            reference(task.tokenizer, example["context"], ending, limit)
            for ending in example["endings"]
        ]
        assert columns["input_ids"].shape == (4, max(len(ids) for ids, _ in rows))
        for choice, (ids, segments) in enumerate(rows):
            mask = columns["input_mask"][choice]
            assert mask.tolist() == [1] * len(ids) + [0] * (len(mask) - len(ids))
            assert columns["input_ids"][choice].tolist() == ids + [0] * sum(mask == 0)
            assert columns["segment_ids"][choice][mask == 1].tolist() == segments


def test_choices_that_are_cut_are_counted(config):
    task = create_task(config)
    task.encode(EXAMPLES, "dev")
    assert task.notices == {"dev: texts longer than max_seq_length, cut": 1}


def test_scores_and_files(config, tmp_path):
    task = task_of(config, EXAMPLES)
    answers = [
        np.array(x, np.float32) for x in ([0, 1, 2, 0], [1, 1, 0, 0], [4, 0, 3, 0])
    ]
    assert task.definition.scores(EXAMPLES, answers) == {
        "accuracy": pytest.approx(2 / 3)
    }
    assert task.definition.baseline_scores(EXAMPLES) == {
        "accuracy": pytest.approx(2 / 3)
    }
    write_predictions(task, tmp_path, "dev", EXAMPLES, answers)
    rows = [json.loads(line) for line in (tmp_path / "dev.jsonl").open()]
    assert [(row["index"], row["label"], row["gold"]) for row in rows] == [
        (0, 2, 2),
        (1, 0, 0),
        (2, 0, 2),
    ]
    for row, answer in zip(rows, answers, strict=True):
        np.testing.assert_allclose(row["scores"], special.softmax(answer), rtol=1e-6)


@pytest.mark.slow
def test_prediction_takes_any_number_of_endings(config, params):
    task = create_task(config)
    rows = [
        {"context": "a b", "endings": ["c", "d e"]},
        {"context": "a b", "endings": ["c", "d e", "f", "g", "h"]},
    ]
    asked = answerer(task.predictor(), params)
    for row, result in zip(rows, asked.answer(rows), strict=True):
        (alone,) = asked.answer([row])
        np.testing.assert_allclose(result["scores"], alone["scores"], rtol=1e-5)
        assert len(result["scores"]) == len(row["endings"])
        assert sum(result["scores"]) == pytest.approx(1)
        assert result["label"] == np.argmax(result["scores"])


def test_rows_with_the_official_columns(config):
    row = {"sent1": "A b.", "sent2": "C", "gold-source": "gold", "label": "2"}
    row |= {f"ending{n}": f"d{n}." for n in range(4)}
    endings = [f"C d{n}." for n in range(4)]
    assert create_task(config).parse_row(row) == choice_row("A b.", endings)


@pytest.mark.parametrize(
    "row",
    [{"endings": ["a", "b"]}, {"context": "x", "endings": ["a", None]}],
)
def test_rows_that_are_no_choices(config, row):
    with pytest.raises(ValueError, match="required"):
        create_task(config).parse_row(row)


def test_files_are_read_by_split(config, tmp_path):
    row = {"context": "a", "endings": ["a", "b", "c", "d"]}
    (tmp_path / "train.jsonl").write_text(json.dumps({**row, "label": 1}))
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    config.task.train_file = str(tmp_path / "train.jsonl")
    config.task.test_file = str(tmp_path / "test.jsonl")
    task = create_task(config)
    expected = choice_row("a", ("a", "b", "c", "d"), 1)
    assert task.definition.read_rows("train") == [expected]
    assert task.definition.read_rows("test") == [expected | {"label": None}]
    assert task.definition.read_rows("dev") is None
    task.fill_in({"task.dev_file": config.task.test_file})
    with pytest.raises(Exception, match="'label' is ''"):
        task.definition.read_rows("dev")
    assert task.phases()[0].shapes == {"input_ids": (16, 4, 12)}
    task.resolve()
    assert task.config.train.num_steps == 1


HEADER = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
ENDINGS = ["ending0", "ending1", "ending2", "ending3"]


def write_csv(path, header, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def row(label, sent1="He ran.", sent2="He", endings=("a", "b", "c", "d")):
    start = ["7", "x-1", "12", f"{sent1} {sent2}", sent1, sent2, "gold", *endings]
    return start if label is None else [*start, label]


def error(source, labelled=True):
    with pytest.raises(UserError) as caught:
        read_choices(source, labelled)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_official_sample(shared_data):
    path = shared_data("swag/sample.csv")
    found = read_choices(str(path), labelled=True)
    with path.open(encoding="utf-8", newline="") as file:
        expected = list(csv.DictReader(file))
    assert len(found) == len(expected) == 11
    for record, fields in zip(found, expected, strict=True):
        # startphrase is both sentences: nothing of it is lost.
        begins = f"{record['context']} {fields['sent2']}"
        assert begins == fields["startphrase"]
        assert record["endings"] == [f"{fields['sent2']} {fields[e]}" for e in ENDINGS]
        assert record["label"] == int(fields["label"])


def test_test_file_has_no_labels(tmp_path):
    source = write_csv(tmp_path / "test.csv", [*HEADER, *ENDINGS], [row(None)])
    endings = ("He a", "He b", "He c", "He d")
    assert read_choices(source, labelled=False) == [choice_row("He ran.", endings)]
    assert "test.csv:2: 'label' is ''" in error(source)


@pytest.mark.parametrize("label", ["4", ""])
def test_labels_are_checked(tmp_path, label):
    rows = [row("3"), row(label)]
    source = write_csv(tmp_path / "a.csv", [*HEADER, *ENDINGS, "label"], rows)
    assert error(source).startswith(f"{source}:3: 'label' is {label!r}")


def test_choices_of_a_wrong_number(tmp_path):
    rows = [row("0"), row("0", endings=("a", "b", "c"))]
    source = write_csv(tmp_path / "a.csv", [*HEADER, *ENDINGS, "label"], rows)
    assert error(source).startswith(f"{source}:3: has 11 fields, but the header")
    source = write_csv(tmp_path / "b.csv", [*HEADER, *ENDINGS[:3], "label"], rows[1:])
    assert 'b.csv:2: "ending3" is required' in error(source)


@pytest.mark.parametrize(
    ("endings", "words"),
    [(["a", "b", "c"], "3 endings; there must be 4"), ("abcd", "a list of strings")],
)
def test_json_lines_are_checked(tmp_path, endings, words):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"context": "x", "endings": endings, "label": 0}))
    message = error(str(path))
    assert message.startswith(f"{path}:1: ")
    assert words in message
