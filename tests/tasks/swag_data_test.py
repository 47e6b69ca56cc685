"""SWAG's official files, HellaSwag from TFDS, and possible errors in them."""

import csv
import json

import pytest

from bert_jax.errors import UserError
from bert_jax.tasks.swag import read_choices
from tests.tasks.small_texts import choice_row

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
