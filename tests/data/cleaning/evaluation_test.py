"""Sequences of evaluation files, and where a text has them."""

import gzip
import json

import numpy as np
import pytest

from bert_jax.data.cleaning import evaluation, grams
from bert_jax.errors import UserError

SENTENCE = "one two three four five six"


def found(tmp_path, text, size=4):
    """Whether each word of a text stands in a sequence of the folder's files."""
    known = evaluation.sequences((f"{tmp_path}/*",), size)
    return evaluation.holds(grams.words(text), known, size).tolist()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", f"id\tsentence\tlabel\n7\t{SENTENCE}\t1\n"),
        ("a.csv", f'id,sentence\n7,"{SENTENCE.replace(" ", ", ")}"\n'),
        ("a.json", json.dumps({"data": [{"x": [SENTENCE, 3, None]}]})),
        ("a.jsonl", f'{{"n": 1}}\n\n{json.dumps({"text": SENTENCE})}\n'),
        ("a.txt", "zero one two\nthree FOUR\nfive: six."),
    ],
)
def test_every_text_file_is_read(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    marks = found(tmp_path, "so two three four five and one two three")
    assert marks == [False, *[True] * 4, *[False] * 4]


def test_escapes_and_compression(tmp_path):
    text = "caf\u00e9 \u4e2d na\u00efve d\u00e9j\u00e0"
    with gzip.open(tmp_path / "a.json.gz", "wt") as file:
        json.dump([text], file)  # as \u00e9
    assert found(tmp_path, f"ici {text}") == [False, *[True] * 4]


def test_strings_of_json_do_not_run_on(tmp_path):
    (tmp_path / "a.json").write_text('["one two three", "four five six seven"]')
    assert found(tmp_path, "one two three four five") == [False] * 5
    assert found(tmp_path, "four five six seven") == [True] * 4


@pytest.mark.parametrize("block", [1, 12, 10_000])
def test_lines_are_read_in_blocks(tmp_path, monkeypatch, block):
    monkeypatch.setattr(evaluation, "_BLOCK", block)
    words = [f"w{number}" for number in range(60)]
    lines = (" ".join(words[i : i + 3]) for i in range(0, 60, 3))
    (tmp_path / "a.txt").write_text("\n".join(lines))
    known = evaluation.sequences((f"{tmp_path}/a.txt",), 13)
    expected = np.unique(grams.grams(grams.words(" ".join(words)), 13))
    assert known.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "too few words", "no text of 4 words"),
        ("a.json", "{", "a.json: is not JSON"),
        ("a.jsonl", '{"a": 1}\n{', "a.jsonl:2: is not JSON"),
        ("a.txt", "", "the file is empty"),
        ("a.bin", b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_what_cannot_be_used(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content) if isinstance(content, bytes) else path.write_text(
        content
    )
    with pytest.raises(UserError, match=message):
        evaluation.sequences((f"{tmp_path}/*",), 4)


def test_no_file(tmp_path):
    with pytest.raises(UserError, match=r"clean_against: no file matches '.*\.tsv'"):
        evaluation.files((f"{tmp_path}/*.tsv",))


def test_the_identity_is_of_the_contents(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two")
    one = evaluation.identity((f"{tmp_path}/?.txt",), tmp_path)
    (tmp_path / "a.txt").rename(tmp_path / "c.txt")
    assert evaluation.identity((f"{tmp_path}/c.txt", f"{tmp_path}/b*"), tmp_path) == one
    (tmp_path / "b.txt").write_text("three")
    assert evaluation.identity((f"{tmp_path}/?.txt",), tmp_path) != one
