"""GLUE's files: the real ones by column numbers, and files that are wrong."""

import csv
import gzip
from collections import Counter

import numpy as np
import pytest

from bert_jax.data import glue
from bert_jax.errors import UserError

FOLDERS = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "stsb": "STS-B",
    "qqp": "QQP",
    "qnli": "QNLI",
    "rte": "RTE",
    "wnli": "WNLI",
}
# Lines of header, and the columns of texts and label, as run_classifier.py has them
# (of the tasks that it lacks, as the data's readmes have them).
LAYOUT = {
    "cola": (0, [3], 1),
    "sst2": (1, [0], 1),
    "mrpc": (1, [3, 4], 0),
    "stsb": (1, [7, 8], 9),
    "qqp": (1, [3, 4], 5),
    "qnli": (1, [1, 2], 3),
    "rte": (1, [1, 2], 3),
    "wnli": (1, [1, 2], 3),
}
TEST_LAYOUT = {
    "cola": [1],
    "sst2": [1],
    "mrpc": [3, 4],
    "stsb": [7, 8],
    "qnli": [1, 2],
    "rte": [1, 2],
    "wnli": [1, 2],
}


def read(name, source, split, told=None):
    labels = glue.TASKS[name].labels
    told = Counter() if told is None else told
    return glue.read(name, str(source), split, labels, told)


def raw(path):
    """The fields as Google's csv.reader gives them."""
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        return list(csv.reader(file, delimiter="\t", quotechar=None, quoting=3))


@pytest.mark.parametrize("name", FOLDERS)
def test_real_dev_sets(shared_data, name):
    folder = shared_data(f"glue/{FOLDERS[name]}")
    told = Counter()
    records = read(name, folder, "dev", told)
    header, texts, label = LAYOUT[name]
    rows = raw(folder / "dev.tsv")[header:]
    assert len(records) == len(rows) and not told
    labels = glue.TASKS[name].labels
    for record, row in zip(records, rows, strict=True):
        expected = [row[column] for column in texts]
        if name == "qqp":
            quoted = [
                t[1:-1].replace('""', '"') if t[0] == '"' else t for t in expected
            ]
            expected = quoted
        assert [record.text, record.text_b][: len(texts)] == expected
        if labels:
            assert labels[record.label] == row[label]
        else:
            assert record.label == float(row[label])


@pytest.mark.parametrize("name", TEST_LAYOUT)
def test_real_test_sets(shared_data, name):
    folder = shared_data(f"glue/{FOLDERS[name]}")
    records = read(name, folder, "test")
    rows = raw(folder / "test.tsv")[1:]
    assert [str(record.id) for record in records] == [row[0] for row in rows]
    assert {record.label for record in records} == {None}
    for record, row in zip(records, rows, strict=True):
        expected = [row[column] for column in TEST_LAYOUT[name]]
        assert [record.text, record.text_b][: len(expected)] == expected


def test_real_training_sets_are_whole(shared_data):
    sizes = {"cola": 8551, "sst2": 67349, "mrpc": 3668, "stsb": 5749, "rte": 2490}
    for name, size in sizes.items():
        folder = shared_data(f"glue/{FOLDERS[name]}")
        assert len(read(name, folder, "train")) == size


def test_mnli_official_layout_and_pairs_only(shared_data, tmp_path):
    official = read("mnli", shared_data("glue/MNLI"), "train")
    rows = raw(shared_data("glue/MNLI/train.tsv"))[1:]
    assert [(r.text, r.text_b) for r in official] == [(x[8], x[9]) for x in rows]
    labels = glue.TASKS["mnli"].labels
    assert [labels[r.label] for r in official] == [x[-1] for x in rows]
    pairs = shared_data("glue/MNLI/dev_matched_pairs.tsv")
    (tmp_path / "dev_matched.tsv").write_bytes(pairs.read_bytes())
    assert len(read("mnli", tmp_path, "dev")) == 9815


def test_diagnostic_set_beside_the_task_or_mnli(shared_data):
    beside = read("ax", shared_data("glue/diagnostic"), "test")
    of_mnli = read("mnli", shared_data("glue/MNLI"), "ax")
    assert beside == of_mnli and len(beside) == 1104


def test_labels_in_another_order(tmp_path):
    text = "index\tsentence1\tsentence2\tgold_label\n0\ta\tb\tneutral\n"
    (tmp_path / "train.tsv").write_text(text)
    order = ("neutral", "entailment", "contradiction")
    (record,) = glue.read("mnli", str(tmp_path), "train", order, Counter())
    assert record == ("0", "a", "b", 0)


def test_windows_line_ends_bom_gzip_and_odd_characters(tmp_path):
    text = '\ufeffsentence\tlabel\r\n"odd \u2028\x85 \x00 text \t1\r\n\r\n\t0\r\n'
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(text.encode()))
    told = Counter()
    records = read("sst2", tmp_path, "train", told)
    assert [r.text for r in records] == ['"odd \u2028\x85 \x00 text ', ""]
    assert [r.label for r in records] == [1, 0]
    assert told == {"train: empty lines, left out": 1}


def test_pairs_without_gold_label_are_counted(tmp_path):
    text = "index\tsentence1\tsentence2\tgold_label\n0\ta\tb\t-\n1\tc\td\tneutral\n"
    (tmp_path / "dev_matched.tsv").write_text(text)
    told = Counter()
    (record,) = read("mnli", tmp_path, "dev", told)
    assert (record.id, record.label) == ("1", 2)
    assert told == {"dev: records without a gold label, left out": 1}


QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("plain", "plain"),
        ('"What is ""it""?"', 'What is "it"?'),
        ('"""A"" b"', '"A" b'),
        ('"unbalanced', '"unbalanced'),
        ('"a" or "b"', '"a" or "b"'),
        ('"', '"'),
        ('""', ""),
        ("", ""),
    ],
)
def test_quotes_of_quora(tmp_path, field, expected):
    (tmp_path / "train.tsv").write_text(f"{QQP}7\t1\t2\t{field}\tx\t1\n")
    assert read("qqp", tmp_path, "train") == [("7", expected, "x", 1)]


@pytest.mark.parametrize(
    ("lines", "records", "counts"),
    [
        # As lines 97,930 and 97,931 of the official train.tsv.
        (['1\t1\t2\t"a', '"\tx\t1'], [("a\n", "x")], (1, 0)),
        (
            ['1\t1\t2\t"a', "", 'b ""c"""\t"x', 'y"\t1'],
            [('a\n\nb "c"', "x\ny")],
            (1, 0),
        ),
        # A whole record is taken as it is, whatever went before.
        (['1\t1\t2\t"a', "2\t1\t2\tc\td\t0"], [("c", "d")], (0, 1)),
        (["1\t1\t2\ta", 'b"\tx\t1'], [], (0, 2)),
        (['1\t1\t2\t"a', "b\tx\t1\t1"], [], (0, 1)),
        (["2\t1\t2\tc\td\t0", '1\t1\t2\t"a'], [("c", "d")], (0, 1)),
    ],
)
def test_line_breaks_inside_of_quotes(tmp_path, lines, records, counts):
    last = "9\t1\t2\tlast\tone\t0"
    (tmp_path / "train.tsv").write_text(QQP + "\n".join([*lines, last]))
    told = Counter()
    found = [(r.text, r.text_b) for r in read("qqp", tmp_path, "train", told)]
    assert found == [*records, ("last", "one")]
    assert told["train: records of several lines, put together"] == counts[0]
    assert told["train: lines that hold no whole record, left out"] == counts[1]


def test_no_test_record_is_left_out(tmp_path):
    text = "id\tquestion1\tquestion2\n1\ta\n"
    (tmp_path / "test.tsv").write_text(text)
    with pytest.raises(UserError, match=r"test.tsv:2: 2 columns, 3 are wanted"):
        read("qqp", tmp_path, "test")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rte", "index\tsentence1\tlabel\n", r"train.tsv:1: no column 'sentence2'"),
        ("sst2", "a text\t1\n", r"train.tsv:1: no column 'sentence'"),
        ("sst2", "sentence\tlabel\na\t1\t0\n", r"train.tsv:2: 3 columns, 2 are wanted"),
        ("sst2", "sentence\tlabel\na\t1\nb\t2\n", r"train.tsv:3: the label is '2'"),
        ("sst2", "sentence\tlabel\n", "the train split holds no record"),
        ("cola", "gj04\t1\ta\n", r"train.tsv:1: 3 columns, 4 are wanted"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\tx\n", r":2: the score is 'x'"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\tnan\n", r":2: the score is 'nan'"),
        ("stsb", "sentence1\tsentence2\tscore\na\tb\t6\n", r":2: the score is '6'"),
        ("rte", "", "the file is empty"),
    ],
)
def test_bad_files(tmp_path, name, text, message):
    (tmp_path / "train.tsv").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read(name, tmp_path, "train")
    assert "\n" not in str(caught.value)


def test_missing_files(tmp_path):
    for split in ("train", "dev"):
        with pytest.raises(UserError, match=f"{split}.tsv: no such file"):
            read("rte", tmp_path, split)
    told = Counter()
    assert read("rte", tmp_path, "test", told) is None
    assert told == {f"test: files missing in {tmp_path}, nothing predicted": 1}
    with pytest.raises(UserError, match="ax has no train set"):
        read("ax", tmp_path, "train")


@pytest.fixture
def in_tfds(make_builder, tmp_path):
    import tensorflow_datasets as tfds

    def make(texts, labels, rows, split):
        features = {text: tfds.features.Text() for text in texts}
        features["idx"] = tfds.features.Scalar(np.int32)
        features["label"] = tfds.features.Scalar(np.float32)
        if labels:
            features["label"] = tfds.features.ClassLabel(names=labels)
        return f"tfds:{make_builder(tmp_path, 'some', rows, features, split=split)}"

    return make


def test_tfds(in_tfds):
    names = ("entailment", "neutral", "contradiction")
    rows = [
        {"premise": "á", "hypothesis": "b", "label": 1, "idx": 5},
        {"premise": "c", "hypothesis": "d", "label": 0, "idx": 3},
    ]
    source = in_tfds(("premise", "hypothesis"), names, rows, "validation_matched")
    assert read("mnli", source, "dev") == [(5, "á", "b", 2), (3, "c", "d", 1)]
    with pytest.raises(UserError, match="no split train; it has validation_matched"):
        read("mnli", source, "train")
    assert read("mnli", source, "test") is None
    with pytest.raises(UserError, match="no feature 'sentence'"):
        glue.read("sst2", source, "validation_matched", ("0", "1"), Counter())


def test_tfds_of_two_classes(in_tfds):
    rows = [{"sentence": "a", "label": 1, "idx": 0}]
    source = in_tfds(("sentence",), ("negative", "positive"), rows, "train")
    assert read("sst2", source, "train") == [(0, "a", None, 1)]


def test_tfds_scores(in_tfds):
    rows = [{"sentence1": "a", "sentence2": "b", "label": 2.5, "idx": 0}]
    source = in_tfds(("sentence1", "sentence2"), (), rows, "train")
    assert read("stsb", source, "train") == [(0, "a", "b", 2.5)]
