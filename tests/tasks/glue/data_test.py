"""GLUE's files: the real ones by column numbers, and files that are wrong."""

import csv
import gzip
import re
from collections import Counter

import pytest

from bert_jax.tasks.glue import data as glue
from tests.micro import error_line

# Folder, lines of header, and the columns of texts and label, as run_classifier.py has
# them (of the tasks that it lacks, as the data's readmes have them), and the texts' of
# test.tsv.
LAYOUT = {
    "cola": ("CoLA", 0, [3], 1, [1]),
    "sst2": ("SST-2", 1, [0], 1, [1]),
    "mrpc": ("MRPC", 1, [3, 4], 0, [3, 4]),
    "stsb": ("STS-B", 1, [7, 8], 9, [7, 8]),
    "qqp": ("QQP", 1, [3, 4], 5, None),
    "qnli": ("QNLI", 1, [1, 2], 3, [1, 2]),
    "rte": ("RTE", 1, [1, 2], 3, [1, 2]),
    "wnli": ("WNLI", 1, [1, 2], 3, [1, 2]),
}


def read(name, source, split, notices=None):
    notices = Counter() if notices is None else notices
    return glue.read_split(name, str(source), split, notices)


def plain(records):
    """Returns rows without their positions."""
    return [{k: v for k, v in row.items() if k != "where"} for row in records]


def raw(path):
    """The fields as Google's csv.reader gives them."""
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        return list(csv.reader(file, delimiter="\t", quotechar=None, quoting=3))


@pytest.mark.parametrize("name", LAYOUT)
def test_glue_dev_and_test_sets(shared_data, name):
    place, header, texts, label, test_texts = LAYOUT[name]
    folder, notices = shared_data(f"glue/{place}"), Counter()
    records = read(name, folder, "dev", notices)
    rows = raw(folder / "dev.tsv")[header:]
    assert not notices and texts_of(records) == [[x[c] for c in texts] for x in rows]
    kind = float if name == "stsb" else str
    assert [record["label"] for record in records] == [kind(x[label]) for x in rows]
    if test_texts:
        records, rows = read(name, folder, "test"), raw(folder / "test.tsv")[1:]
        assert [str(record["id"]) for record in records] == [row[0] for row in rows]
        assert {record["label"] for record in records} == {None}
        assert texts_of(records) == [[x[c] for c in test_texts] for x in rows]


def texts_of(records):
    names = ("text", "text_b")
    return [[x[name] for name in names if x.get(name) is not None] for x in records]


def test_mnli_official_layout_and_pairs_only(shared_data, tmp_path):
    official = read("mnli", shared_data("glue/MNLI"), "train")
    rows = raw(shared_data("glue/MNLI/train.tsv"))[1:]
    assert [(r["text"], r["text_b"]) for r in official] == [(x[8], x[9]) for x in rows]
    assert [r["label"] for r in official] == [x[-1] for x in rows]
    pairs = shared_data("glue/MNLI/dev_matched_pairs.tsv")
    (tmp_path / "dev_matched.tsv").write_bytes(pairs.read_bytes())
    assert len(read("mnli", tmp_path, "dev")) == 9815


def test_diagnostic_set_beside_the_task_or_mnli(shared_data):
    beside = read("ax", shared_data("glue/diagnostic"), "test")
    of_mnli = read("mnli", shared_data("glue/MNLI"), "ax")
    assert plain(beside) == plain(of_mnli) and len(beside) == 1104


def test_windows_line_ends_bom_gzip_and_odd_characters(tmp_path):
    text = '\ufeffsentence\tlabel\r\n"odd \u2028\x85 \x00 text \t1\r\n\r\n\t0\r\n'
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(text.encode()))
    notices = Counter()
    records = read("sst2", tmp_path, "train", notices)
    assert [r["text"] for r in records] == ['"odd \u2028\x85 \x00 text ', ""]
    assert [r["label"] for r in records] == ["1", "0"]


def test_pairs_without_gold_label_are_counted(tmp_path):
    text = "index\tsentence1\tsentence2\tgold_label\n0\ta\tb\t-\n1\tc\td\tneutral\n"
    (tmp_path / "dev_matched.tsv").write_text(text)
    notices = Counter()
    (record,) = read("mnli", tmp_path, "dev", notices)
    assert (record["id"], record["label"]) == ("1", "neutral")
    assert notices == {"dev: records without a gold label, left out": 1}


STSB = "sentence1\tsentence2\tscore\n"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"


def test_qqp_records_with_a_line_break_are_left_out(tmp_path):
    (tmp_path / "train.tsv").write_text(f"{QQP}1\t1\t2\ta\tb\t1\n2\t3\t4\tc\nd\te\t0\n")
    (record,) = read("qqp", tmp_path, "train")
    assert record["text"] == "a"


def test_quotes_are_text_without_a_word(tmp_path, caplog):
    (tmp_path / "train.tsv").write_text('sentence\tlabel\n"a ""b"""\t1\n')
    (record,) = read("sst2", tmp_path, "train")
    assert record["text"] == '"a ""b"""' and not caplog.messages


@pytest.mark.parametrize(
    ("name", "split", "text", "said"),
    [
        ("sst2", "train", "sentence\tlabel\na\n", ":2: has 1 fields, .* names 2"),
        ("sst2", "train", "sentence\tgold\na\t1\n", ":1: no column 'label'"),
        ("stsb", "train", f"{STSB}a\tb\tx\n", ":2: the label is 'x'"),
        ("stsb", "train", f"{STSB}a\tb\t9\n", ":2: the score is 9.0"),
        (
            "qqp",
            "test",
            "id\tquestion1\tquestion2\n1\ta\n",
            ":2: has 2 fields, .* names 3",
        ),
        ("rte", "train", None, ": no such file"),
        ("rte", "dev", None, ": no such file"),
        ("ax", "train", None, "ax has no train set"),
    ],
)
def test_glue_files_that_are_bad(tmp_path, name, split, text, said):
    if text:
        (tmp_path / f"{split}.tsv").write_text(text)
    line = error_line(read, name, tmp_path, split)
    assert re.search(f"{split}.tsv{said}" if said[0] == ":" else said, line)


def test_missing_files(tmp_path):
    notices = Counter()
    assert read("rte", tmp_path, "test", notices) is None
    assert notices == {f"test: files missing in {tmp_path}, nothing predicted": 1}
    assert read("mnli", tmp_path, "dev_mismatched") is None
