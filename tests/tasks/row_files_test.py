"""Rows from tables and lines of text, and answers into tables."""

import csv
import gzip
import io
import json
import lzma

import pytest

from bert_jax.data.tables import ColumnSpec
from bert_jax.tasks import row_files
from tests.micro import error_line, write_rows

FIELDS = {"text": 'a "b",\nc', "id": "7"}


def read(path):
    return [row.fields for row in row_files.input_rows(str(path))]


def test_tables_and_lines_become_rows(tmp_path):
    table = tmp_path / "rows.csv"
    with table.open("w", newline="") as file:
        rows = csv.DictWriter(file, FIELDS)
        rows.writeheader()
        rows.writerows([FIELDS, FIELDS | {"id": ""}])
    assert read(table) == [FIELDS, FIELDS | {"id": ""}]
    (place, _), *_ = row_files.input_rows(str(table))
    assert place == f"{table}:2"
    tabs = tmp_path / "rows.tsv.gz"
    tabs.write_bytes(gzip.compress(b'text\tid\n"a\t1\n'))
    assert read(tabs) == [{"text": '"a', "id": "1"}]
    lines = tmp_path / "rows.txt"
    lines.write_text("\ufeffone {}\r\n\n two\u2028three")
    found = [row["text"] for row in read(lines)]
    assert found == ["one {}", "", " two\u2028three"]  # as many as lines
    packed = tmp_path / "rows.jsonl.xz"
    packed.write_bytes(lzma.compress(b'{"text": "a"}\n\n{"text": "b"}\n'))
    assert read(packed) == [{"text": "a"}, {"text": "b"}]


def test_table_without_a_header(tmp_path):
    table = tmp_path / "rows.tsv"
    table.write_text("a b\t1\n0\t2\n")
    found = row_files.input_rows(str(table), ColumnSpec(("0",), ("1",)))
    assert list(found) == [
        (f"{table}:1", {"0": "a b", "1": "1"}),
        (f"{table}:2", {"0": "0", "1": "2"}),
    ]


ROWS = [
    {"text": 'a,"b"', "label": "x", "scores": {"x": 0.75, "y": 0.25}, "words": ["a"]},
    {"text": "c\td", "label": None, "scores": {"x": 0.5, "y": 0.5}, "words": []},
]


def written(target, rows):
    file = io.StringIO()
    write = row_files.row_writer(target, file)
    for row in rows:
        write(row)
    return file.getvalue()


def test_answers_become_a_table():
    assert list(csv.reader(io.StringIO(written("a.csv", ROWS)))) == [
        ["text", "label", "scores.x", "scores.y", "words"],
        ['a,"b"', "x", "0.75", "0.25", '["a"]'],
        ["c\td", "", "0.5", "0.5", "[]"],
    ]
    lines = written("a.tsv", ROWS).splitlines()
    assert lines[0].split("\t") == ["text", "label", "scores.x", "scores.y", "words"]
    assert lines[2].split("\t") == ["c d", "", "0.5", "0.5", "[]"]
    assert written("a.jsonl", ROWS) == written("-", ROWS)
    assert [json.loads(x) for x in written("-", ROWS).splitlines()] == ROWS


def test_fields_with_line_breaks_stay_whole():
    rows = [{"text": f"a{end}b", "label": ""} for end in ("\r", "\n", "\r\n")]
    file = io.StringIO(written("a.csv", rows), newline="")
    assert list(csv.DictReader(file)) == rows


@pytest.mark.parametrize(
    ("name", "rows", "said"),
    [
        ("a.csv.gz", [], "only .jsonl, .csv and .tsv are written"),
        (
            "a.csv",
            [{"text": "a"}, {"text": "b", "more": 1}],
            "not all rows have 'more'",
        ),
    ],
)
def test_rows_that_make_no_table(name, rows, said):
    line = error_line(written, name, rows)
    assert line.startswith(f"--output={name}: ") and said in line


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_that_json_lacks(tmp_path, number):
    """The answers would be no JSON."""
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a", "x": [{number}]}}\n')
    line = error_line(read, tmp_path / "a.jsonl")
    assert f"a.jsonl:1: not JSON (has {number}: write" in line


def test_fields_that_start_late_make_a_table(tmp_path):
    """What a row lacks is an empty field, of an object too."""
    rows = [{"text": "a", "o": {"x": 1}}, {"o": {"y": "b"}, "late": 2}, {"text": "c"}]
    source = write_rows(tmp_path / "rows.jsonl", rows)
    names = row_files.late_fields(source, "a.csv")
    assert names == ["text", "o.x", "o.y", "late"]
    assert row_files.late_fields(source, "a.jsonl") == []
    filled = [dict.fromkeys(names) | row_files.flat_row(row) for row in rows]
    assert written("a.csv", filled) == "text,o.x,o.y,late\na,1,,\n,,b,2\nc,,,\n"
    assert written("a.csv", [{"a": 1, "b": 2}, {"b": 3}]) == "a,b\n1,2\n,3\n"


@pytest.mark.parametrize("kind", ["pandas", "pyarrow"])
def test_answers_become_columns_of_a_frame(kind):
    module = pytest.importorskip(kind)
    columns = {"text": ["a", "b"], "label": ["x", "y"]}
    answers = [{"label": "y", "scores": {"x": 0.25, "y": n}, "at": [n]} for n in (1, 2)]
    if kind == "pandas":
        frame = module.DataFrame(columns, index=[7, 7])
        found = row_files.answered_frame(frame, answers)
        assert [*found.index] == [7, 7] and [*frame.columns] == ["text", "label"]
        found = found.to_dict("list")
    else:
        found = row_files.answered_frame(module.table(columns), answers).to_pydict()
    assert found == {
        **{"text": ["a", "b"], "gold": ["x", "y"], "label": ["y", "y"]},
        **{"scores.x": [0.25, 0.25], "scores.y": [1, 2], "at": [[1], [2]]},
    }


def test_label_of_the_row_stays_as_gold():
    row, answer = {"text": "a", "score": 5.0}, {"score": 2.5}
    found = row_files.answered_row(row, answer)
    assert found == {"text": "a", "gold": 5.0, "score": 2.5}
    again = row_files.answered_row(found, {"score": 3.0})  # by another model
    assert again == {"text": "a", "gold": 5.0, "input_score": 2.5, "score": 3.0}
    third = row_files.answered_row(again, {"score": 4.0})
    assert third == again | {"input_input_score": 3.0, "score": 4.0}
    assert row_files.answered_row({"text": "a"}, answer) == {"text": "a", "score": 2.5}


def test_row_keeps_its_fields(tmp_path):
    """Nor under the columns of the answer's objects in a table."""
    table = tmp_path / "rows.csv"
    table.write_text("text,label,gold,scores.pos,labels\ngood film,pos,x,9,many\n")
    answer = {"label": "neg", "scores": {"pos": 0.25, "neg": 0.75}}
    (row,) = read(table)
    found = row_files.answered_row(row, answer)
    assert found == {
        **{"text": "good film", "input_label": "pos", "gold": "x"},
        **{"input_scores.pos": "9", "labels": "many"},
        **answer,
    }
    header, line = csv.reader(io.StringIO(written("a.csv", [found])))
    assert len(set(header)) == len(header) == len(line) == 8


@pytest.mark.parametrize(
    ("name", "content"),
    [("rows.tsv", 'text\tid\n"a"\t1\n'), ("rows.txt", "text,id\na,1\n")],
)
def test_format_by_name(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    ((_, row),) = row_files.input_rows(str(path), ColumnSpec(format="csv"))
    assert row == {"text": "a", "id": "1"}
