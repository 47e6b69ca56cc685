"""Words and tags in rows of JSON are those of a file of columns."""

import gzip
import json

import pytest

from bert_jax.errors import UserError
from bert_jax.tasks.ner.data import as_columns
from bert_jax.tasks.ner.data import read_sentences as read_columns

ROWS = [
    {"id": 1, "tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]},
    {"id": 2, "tokens": [], "ner_tags": []},
    {"id": 3, "tokens": ["Peter"], "ner_tags": ["B-PER"]},
]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz"])
def test_rows_of_json(tmp_path, name):
    text = "".join(f"{json.dumps(row)}\n" for row in ROWS)
    content = text.encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    file = read_columns(path, token_column=0, tag_column=-1, labelled=True)
    found = [(s["words"], s["tags"], s["places"][0]) for s in file]
    assert found == [
        (("EU", "rejects"), ("B-ORG", "O"), 1),
        (("Peter",), ("B-PER",), 3),
    ]
    assert as_columns(file, [["O", "O"], ["O"]]).splitlines()[0] == "EU\tB-ORG\tO"


def test_numbers_are_the_labels_that_are_given(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('\n{"tokens": ["EU", "a"], "ner_tags": [1, 0]}\n')
    columns = {"token_column": 0, "tag_column": -1, "labelled": True}
    (sentence,) = read_columns(path, **columns, labels=("O", "B-ORG"))
    assert sentence["tags"] == ("B-ORG", "O") and sentence["places"] == (2, 2)
    for labels in ((), ("O",)):
        with pytest.raises(
            UserError, match=r"a.jsonl:2: 2 words .*task\.labels"
        ) as error:
            read_columns(path, **columns, labels=labels)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"tokens": ["a"], "tags": ["O"]}\n{"words": ["a"]}\n',
            "jsonl:2: no column 'tokens'",
        ),
        ('{"tokens": ["a"], "tags": ["O"]}\na O\n', "jsonl:2: not JSON"),
        (
            '{"tokens": ["a"], "tags": ["O"]}\n{"tokens": ["b"]}\n',
            "jsonl:2: has no tags",
        ),
        ('{"tokens": ["a"], "tags": []}\n', "jsonl:1: 1 words and 0 tags"),
    ],
)
def test_rows_that_are_wrong(tmp_path, text, message):
    (tmp_path / "a.jsonl").write_text(text)
    path = {"token_column": 0, "tag_column": -1, "labelled": True}
    with pytest.raises(UserError, match=message) as error:
        read_columns(tmp_path / "a.jsonl", **path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("has_tags", [True, False])
def test_words_of_rows_may_have_spaces(tmp_path, has_tags):
    """Also behind a #, which is no comment there."""
    words = [["# a", "10\u00a0000"], ["New York", "b"], ["#", " "], ["x"]]
    tags = [["B-LOC"] * len(each) for each in words]
    rows = [
        {"tokens": some} | ({"ner_tags": own} if has_tags else {})
        for some, own in zip(words, tags, strict=True)
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    file = read_columns(path, token_column=0, tag_column=-1, labelled=has_tags)
    found = [list(sentence["words"]) for sentence in file]
    assert found == [["# a", "10 000"], *words[1:]]
    known = [sentence["tags"] and list(sentence["tags"]) for sentence in file]
    assert known == (tags if has_tags else [None] * 4)
