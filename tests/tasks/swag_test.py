"""SWAG: official files, features by Google's rules, the loss by hand, prediction."""

import csv
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import special

from bert_jax.tasks import create_task
from bert_jax.tasks.finetuning import Finetuning
from bert_jax.tasks.swag import Swag, read_choices
from configs.finetune import swag
from tests.micro import answerer, error_line, initial_params, read_rows, write_rows
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
    answers = [*np.float32([[0, 1, 2, 0], [1, 1, 0, 0], [4, 0, 3, 0]])]
    expected = {"accuracy": pytest.approx(2 / 3)}
    assert task.definition.scores(EXAMPLES, answers) == expected
    assert task.definition.baseline_scores(EXAMPLES) == expected
    write_predictions(task, tmp_path, "dev", EXAMPLES, answers)
    rows = read_rows(tmp_path / "dev.jsonl")
    found = [(row["index"], row["label"], row["gold"]) for row in rows]
    assert found == [(0, 2, 2), (1, 0, 0), (2, 0, 2)]
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
    "row", [{"endings": ["a", "b"]}, {"context": "x", "endings": ["a", None]}]
)
def test_rows_that_are_no_choices(config, row):
    with pytest.raises(ValueError, match="required"):
        create_task(config).parse_row(row)


def test_files_are_read_by_split(config, tmp_path):
    row = {"context": "a", "endings": ["a", "b", "c", "d"]}
    train = write_rows(tmp_path / "train.jsonl", [{**row, "label": 1}])
    test = write_rows(tmp_path / "test.jsonl", [row])
    config.task.update(train_file=train, test_file=test)
    task = create_task(config)
    expected = choice_row("a", ("a", "b", "c", "d"), 1)
    assert task.definition.read_rows("train") == [expected]
    assert task.definition.read_rows("test") == [expected | {"label": None}]
    assert task.definition.read_rows("dev") is None
    task.fill_in({"task.dev_file": test})
    assert "'label' is ''" in error_line(task.definition.read_rows, "dev")
    assert task.phases()[0].shapes == {"input_ids": (16, 4, 12)}
    task.resolve()
    assert task.config.train.num_steps == 1


HEADER = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
ENDINGS = ["ending0", "ending1", "ending2", "ending3"]


def write_csv(path, header, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def row(label, endings="abcd"):
    start = ["7", "x-1", "12", "He ran. He", "He ran.", "He", "gold", *endings]
    return start if label is None else [*start, label]


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


NAMES = [*HEADER, *ENDINGS, "label"]


@pytest.mark.parametrize(
    ("header", "rows", "said"),
    [
        (NAMES, [row("3"), row("4")], ":3: 'label' is '4'"),
        (NAMES, [row("3"), row("")], ":3: 'label' is ''"),
        ([*HEADER, *ENDINGS], [row(None)], ":2: 'label' is ''"),
        (NAMES, [row("0"), row("0", "abc")], ":3: has 11 fields, but the header"),
        (
            [*HEADER, *ENDINGS[:3], "label"],
            [row("0", "abc")],
            ':2: "ending3" is required',
        ),
        (None, [["a", "b", "c"]], ":1: .*3 endings; there must be 4"),
        (None, ["abcd"], ":1: .*a list of strings"),
    ],
)
def test_choices_that_are_wrong(tmp_path, header, rows, said):
    if header is None:
        rows = [{"context": "x", "endings": own, "label": 0} for own in rows]
        source = write_rows(tmp_path / "a.jsonl", rows)
    else:
        source = write_csv(tmp_path / "a.csv", header, rows)
    assert re.match(re.escape(source) + said, error_line(read_choices, source, True))
