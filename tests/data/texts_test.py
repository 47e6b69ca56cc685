"""Labeled texts: valid labels, held-out records, texts in folders."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.texts import (
    film_urls,
    group_name,
    hold_out,
    label_warnings,
    positive_label,
    read_folders,
    read_texts,
    sorted_labels,
)
from tests.micro import error_line


def row_of(where, label):
    return {"where": where, "text": "", "label": label}


def write(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return str(path)


def labels(path, values, kind, labelled=True):
    source = write(path, [{"text": "t", "label": value} for value in values])
    return [row["label"] for row in read_texts(source, kind, labelled=labelled)]


def test_single_texts_and_pairs(tmp_path):
    source = write(tmp_path / "a.jsonl", [{"q": "a", "d": "b", "y": "c", "z": 1}])
    where = {"where": f"{source}:1"}
    (single,) = read_texts(source, text="q", label="y")
    assert single == {**where, "text": "a", "label": "c"}
    (pair,) = read_texts(source, text="q", text_b="d", label="y")
    assert pair == {**where, "text": "a", "text_b": "b", "label": "c"}
    for text_b, said in (
        ("e", "a.jsonl:1: no column 'e'; there are: q, d, y"),
        ("z", "a.jsonl:1: 'z' is 1; it must be a string"),
    ):
        given = {"text": "q", "text_b": text_b, "label": "y"}
        assert said in error_line(read_texts, source, **given)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("classification", ["a b", 3, True, "-1"], ["a b", "3", "true", "-1"]),
        (
            "classification",
            [1, 1.0, "1", "1.0", " 1.00", "-2.0", "1.5", "1.0.0", "v1.0"],
            ["1", "1", "1", "1", "1", "-2", "1.5", "1.0.0", "v1.0"],
        ),
        ("regression", [1, -2.5, "3.25", " 1e3\t"], [1.0, -2.5, 3.25, 1000.0]),
        (
            "multilabel",
            [["b", "a", "b"], [], "a, b", "", " ", [1]],
            [("b", "a"), (), ("a", "b"), (), (), ("1",)],
        ),
        # Lists of 0 and 1 by index, but not those that may be the names 0 and 1.
        ("multilabel", [[1, 0, 1], [0, 1, 1]], [("0", "2"), ("1", "2")]),
        ("multilabel", [[True, False], [False, False]], [("0",), ()]),
        ("multilabel", ["1.0,0.0", "0, 1"], [("0",), ("1",)]),
        ("multilabel", [[0, 1], [0, 1]], [("0", "1"), ("0", "1")]),
        ("multilabel", [[0], [1]], [("0",), ("1",)]),
        ("multilabel", [[0, 1, 1], [2]], [("0", "1"), ("2",)]),
        # Fields of CSV, as Python, NumPy and DuckDB show lists.
        (
            "multilabel",
            ["['a', \"b c\"]", "['b' 'c d']", "[a, b]", "{'a'}", "('a',)", "[]", "(a)"],
            [("a", "b c"), ("b", "c d"), ("a", "b"), ("a",), ("a",), (), ("(a)",)],
        ),
        ("multilabel", ["[1 0 1]", "[0. 0. 0.]"], [("0", "2"), ()]),
        ("multilabel", ["[ True False  True]"], [("0", "2")]),
    ],
)
def test_labels_of_each_kind(tmp_path, kind, values, expected):
    assert labels(tmp_path / "a.jsonl", values, kind) == expected


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("classification", "", "the label ('label') is empty"),
        ("classification", 1.5, "the label is 1.5; it must be a name or an integer"),
        ("regression", "nan", "finite number"),
        ("multilabel", ["a", None], "the label is None"),
        ("multilabel", '["a", null]', """the labels are ["a", null]; write a list"""),
        ("multilabel", "tensor([1, 0])", "the labels are tensor([1, 0]); write a list"),
        ("multilabel", "[0 1 ... 0 1]", "the labels are [0 1 ... 0 1]; write a list"),
    ],
)
def test_labels_that_are_none(tmp_path, kind, value, words):
    path = tmp_path / "a.jsonl"
    good = {"classification": "a", "regression": 1, "multilabel": ["a"]}[kind]
    message = error_line(labels, path, [good, value], kind)
    assert message.startswith(f"{path}:2: ") and words in message


def test_positive_label():
    assert positive_label(["10", "2"]) == "10"
    assert positive_label(["b", "a"]) == "b"
    assert positive_label(["1", "0"], "0.0") == "0"
    assert positive_label(["2.0", "10.0"], "10.0") == "10.0"


def test_labels_that_may_be_none_or_the_same():
    names = ["\u00e9te\u0301", "e\u0301t\u00e9", "New\u00a0York", "\u200bnew york"]
    names += ["x", "NaN"]
    alike, others, gap = label_warnings(dict.fromkeys(names, 2), "classification")
    assert alike.startswith("the labels '\\xe9te\\u0301', 'e\\u0301t\\xe9' look alike")
    assert "'New\\xa0York', '\\u200bnew york' look alike" in others
    assert gap.startswith("the label 'NaN' of 2 rows is a class; leave them out")
    scores = {"0.5": 3, "1": 2, "2.25": 1}
    (line,) = label_warnings(scores, "classification")
    assert "fractions, such as 2.25, here 3 classes; if they are scores" in line
    assert label_warnings(scores, "multilabel") == []
    assert label_warnings({"1": 2, "2": 1}, "classification") == []


def test_test_file_may_lack_labels(tmp_path):
    path = tmp_path / "a.jsonl"
    assert labels(path, ["a", "", None], "classification", False) == ["a", None, None]
    source = write(path, [{"text": "t"}])
    (row,) = read_texts(source, "regression", labelled=False)
    assert row["label"] is None
    assert "a.jsonl:1: no column 'label'" in error_line(
        read_texts, source, "regression"
    )


def test_order_of_labels():
    assert sorted_labels({"10", "9", "-1"}) == ["-1", "9", "10"]
    assert sorted_labels({"10", "9", "b", "A"}) == ["10", "9", "A", "b"]
    assert sorted_labels({"01", "1"}) == ["01", "1"]
    assert sorted_labels({"1" * 5000, "2"}) == ["1" * 5000, "2"]


def test_rows_of_a_group_have_its_name(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text,label,topic\na,x,1\nb,y,1\na,y,2\n")
    names = [group_name(row) for row in read_texts(str(path), group="topic")]
    assert names == ["1", "1", "2"]
    one, two, three = (group_name(row) for row in read_texts(str(path)))
    assert one == three != two
    assert "no column 'z'" in error_line(read_texts, str(path), group="z")


@given(
    st.lists(st.sets(st.sampled_from("abcdefgh"), max_size=3), min_size=1),
    st.integers(0, 9),
)
def test_hold_out_keeps_each_label_in_training(several, tenths):
    texts = [row_of("", tuple(sorted(names))) for names in several]
    groups = [*map(str, range(len(texts)))]
    kept, held = hold_out(texts, tenths / 10, groups)
    assert len(held) <= int(len(texts) * (tenths / 10))
    assert set().union(*several) == {name for text in kept for name in text["label"]}
    common = [row_of("", ("a",))] * 10
    _, held = hold_out(common, 0.5, [*"0123456789"])
    assert len(held) == 5


def test_share_is_of_decimals():
    texts = [row_of(str(i), "a") for i in range(100)]
    for share in range(100):
        _, held = hold_out(texts, float(f"0.{share:02d}"), [*map(str, range(100))])
        assert len(held) == share


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("uvwxyz"))),
    st.integers(0, 9),
    st.randoms(),
)
def test_groups_stay_whole(drawn, tenths, random):
    texts = [row_of(str(i), name) for i, (name, _) in enumerate(drawn)]
    groups = [group for _, group in drawn]
    kept, held = hold_out(texts, tenths / 10, groups)
    assert sorted(kept + held, key=lambda text: int(text["where"])) == texts
    sides = [{groups[int(text["where"])] for text in part} for part in (kept, held)]
    assert not sides[0] & sides[1]
    counts = Counter(text["label"] for text in held)
    for label, count in Counter(name for name, _ in drawn).items():
        assert counts[label] <= int(count * (tenths / 10))
    # The order of the records makes no difference to which are held out.
    order = list(range(len(texts)))
    random.shuffle(order)
    _, again = hold_out(
        [texts[i] for i in order], tenths / 10, [groups[i] for i in order]
    )
    assert sorted(again, key=str) == sorted(held, key=str)
    for part in (kept, held):
        assert part == sorted(part, key=lambda text: int(text["where"]))


@pytest.fixture
def archive(tmp_path):
    """Three films, each with reviews of both classes, far apart in each."""
    films_of = {"pos": [2, 0, 1, 1, 0, 2], "neg": [0, 1, 1, 2]}
    for name, numbers in films_of.items():
        (tmp_path / name).mkdir()
        for index in range(len(numbers)):
            (tmp_path / name / f"{index}_7.txt").write_text(f"{name} {index}")
        urls = "".join(f"http://film/{n}/usercomments\n" for n in numbers)
        (tmp_path / f"urls_{name}.txt").write_text(urls)
    return tmp_path, films_of


def test_films_of_the_archive(archive):
    folder, films_of = archive
    texts = read_folders(folder)
    found = film_urls(folder, texts)
    for text, film in zip(texts, found, strict=True):
        _, index = text["text"].split()
        number = films_of[text["label"]][int(index)]
        assert film == f"http://film/{number}/usercomments"
    (folder / "pos" / "6_9.txt").write_text("one too many")
    with pytest.raises(IndexError):
        film_urls(folder, read_folders(folder))
    (folder / "urls_neg.txt").unlink()
    assert film_urls(folder, read_folders(folder)) is None


def test_folders(tmp_path):
    for name, content in {
        "pos/10_9.txt": b"good\nfilm\r\n",
        "pos/9_8.txt": b"\xef\xbb\xbf\xc3\xa9\x00",
        "neg/0_1.txt": b"",
        "neg/notes.md": b"no text",
        "unsup/0_0.txt": b"?",
        "urls.txt": b"?",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert read_folders(tmp_path) == [
        {"where": str(tmp_path / "neg/0_1.txt"), "text": "", "label": "neg"},
        {
            "where": str(tmp_path / "pos/10_9.txt"),
            "text": "good\nfilm\r\n",
            "label": "pos",
        },
        {"where": str(tmp_path / "pos/9_8.txt"), "text": "é\0", "label": "pos"},
    ]
    (tmp_path / "pos/8_8.txt").write_bytes(b"caf\xe9")
    for folder, said in (
        ("", "pos/8_8.txt: byte 3 is not UTF-8; save"),
        ("none", "has no texts; CLASS/*.txt is required"),
        ("neg", "has no texts; CLASS/*.txt is required"),
    ):
        assert said in error_line(read_folders, tmp_path / folder)
