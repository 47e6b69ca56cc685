"""Tables: the same records from every kind of file, and a line for each mistake."""

import csv
import datetime
import decimal
import gzip
import io
import json
import math
import re

import numpy as np
import pyarrow
import pytest
import tensorflow_datasets as tfds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bert_jax.data.tables import ColumnSpec, json_lines, python_rows, read_table
from tests.micro import error_line

FIELDS = {
    ".csv": 'text,label\n"one\u2028a, ""b""",x\ntwo\x85\0,y\n',
    ".tsv": 'text\tlabel\none\u2028a, "b"\tx\ntwo\x85\0\ty\n',
    ".jsonl": '{"text": "one\u2028a, \\"b\\"", "label": "x"}\n'
    '{"label": "y", "text": "two\x85\\u0000"}\n',
}


def rows(source, columns=()):
    return [record.fields for record in read_table(source, ColumnSpec(tuple(columns)))]


def error(source, columns=()):
    return error_line(read_table, source, ColumnSpec(tuple(columns)))


def write(folder, name, content):
    if isinstance(content, str):
        content = content.encode("utf-8")
    (folder / name).write_bytes(content)
    return str(folder / name)


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("form", ["plain", "windows", "no last end", "blanks", "gz"])
def test_read_table_takes_every_kind_and_form(tmp_path, kind, form):
    content, name = FIELDS[kind].encode(), f"a{kind}"
    if form == "windows":
        content = b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")
    elif form == "no last end":
        content = content[:-1]
    elif form == "blanks":
        content = content.replace(b"\n", b"\n\n") + b"\n"
    elif form == "gz":
        content, name = gzip.compress(content), f"a{kind}.gz"
    source = write(tmp_path, name, content)
    records = read_table(source, ColumnSpec(("text", "label")))
    assert [record.fields for record in records] == [
        {"text": 'one\u2028a, "b"', "label": "x"},
        {"text": "two\x85\0", "label": "y"},
    ]
    first = 1 if kind == ".jsonl" else 2
    step = 2 if form == "blanks" else 1
    lines = [f"{source}:{1 + step * (first - 1)}", f"{source}:{1 + step * first}"]
    assert [record.where for record in records] == lines


def test_field_may_hold_lines_and_a_megabyte(tmp_path):
    long = "word\n" * 200_000
    source = write(tmp_path, "a.csv", f'label,text\n0,"{long}"\n1,"a\r\nb"\n')
    first, second = read_table(source, ColumnSpec(("text",)))
    assert first.fields["text"] == long
    assert second == (f"{source}:200003", {"label": "1", "text": "a\nb"})


def test_quotes_mean_nothing_in_tsv(tmp_path):
    source = write(tmp_path, "a.tsv", 'a\tb\n"one\ttwo\n"three" \t""\n')
    assert rows(source) == [{"a": '"one', "b": "two"}, {"a": '"three" ', "b": '""'}]


def test_empty_line_of_one_column_is_an_empty_text(tmp_path):
    source = write(tmp_path, "a.tsv", "text\na\n\nb\n")
    assert [row["text"] for row in rows(source)] == ["a", "", "b"]


texts = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=5))
def test_csv_as_python_writes_it(tmp_path, table):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([("a", "b", "c"), *table])
    source = write(tmp_path, "a.csv", file.getvalue())
    records = read_table(source, ColumnSpec(("a", "b", "c")))
    assert [tuple(record.fields.values()) for record in records] == table
    line = 2
    for record, row in zip(records, table, strict=True):
        assert record.where == f"{source}:{line}"
        line += 1 + "".join(row).count("\n")


NUMBERS = "".join(f"{number},{number**5}\n" for number in range(999))
CUT_OFF = gzip.compress(f"a,b\n{NUMBERS}".encode())[:-100]


FIRST_LINE_IS_A_HEADER = ":1: .*is a header.*t="
MORE_FIELDS = ":2: .*3 fields, but the header names 2; write as many; are fields quoted"


@pytest.mark.parametrize(
    ("kind", "content", "columns", "said"),
    [
        ("csv", "t,b\n1,2\n1,2,3\n", "t", ":3: .*3 fields, but the header names 2"),
        ("csv", "a,b\n1,2\n", "t", ":1: no column 't'; there are: a, b"),
        ("jsonl", '{"t": ""}\n{"x": 1}\n', "t", ":2: no column 't'; there are: x"),
        ("jsonl", '{"t": "a\n', "t", ":1: .*not JSON"),
        ("jsonl", '["t"]\n', "t", ":1: .*not a JSON object"),
        ("csv", b"t\n\xe9\n", "t", ":2: .*not UTF-8"),
        ("tsv", "t,b\n1,2\n", "t", ":1: .*t,b; are they separated by commas"),
        ("csv", '1,2\n3,"4\n5,6\n7,8\n', "", ":2: the record that starts here is not"),
        ("tsv", 'a\tb\n"c\td"\ty\n', "", MORE_FIELDS),
        ("tsv", "x\ta\ny\tb\n", "20", r":1: no column '2'; there are: 0, 1\Z"),
        ("tsv", "x\ta\ny\n", "0", ":2: has 1 fields, but line 1 has 2"),
        ("csv", "text,label\n1,a film,2\n", "01", FIRST_LINE_IS_A_HEADER),
        ("csv", "Class Index,Title,D\n1,a film,2\n", "01", FIRST_LINE_IS_A_HEADER),
        ("csv", ",review_text,stars\n1,a film,2\n", "01", FIRST_LINE_IS_A_HEADER),
        ("csv", None, "", ".*cannot be read"),
        ("csv.gz", CUT_OFF, "", ".*cannot be read"),
    ],
)
def test_table_that_is_wrong_is_named_in_one_line(
    tmp_path, kind, content, columns, said
):
    source = str(tmp_path / f"a.{kind}")
    if content is not None:
        write(tmp_path, f"a.{kind}", content)
    assert re.match(re.escape(source) + said, error(source, columns))


@pytest.mark.parametrize("kind", [".csv", ".tsv"])
def test_file_without_a_header_has_numbers(tmp_path, kind):
    lines = FIELDS[kind].encode().partition(b"\n")[2]
    source = write(tmp_path, f"a{kind}.gz", gzip.compress(b"\xef\xbb\xbf" + lines))
    assert read_table(source, ColumnSpec(("1",), ("0",))) == [
        (f"{source}:1", {"0": 'one\u2028a, "b"', "1": "x"}),
        (f"{source}:2", {"0": "two\x85\0", "1": "y"}),
    ]


def test_first_line_of_excel(tmp_path):
    source = write(tmp_path, "a.csv", "\ufeffsep=;\r\ntext;label\r\na, b|c;x\r\n")
    (record,) = read_table(source, ColumnSpec(("text", "label")))
    assert record == (f"{source}:3", {"text": "a, b|c", "label": "x"})


VALUES = [
    (np.array(["x", "y"]), ["x", "y"]),
    ({"y", "x"}, ["x", "y"]),
    ((np.int64(1), np.float32(0.5), np.bool_(True)), [1, 0.5, True]),
    ("caf\u00e9".encode(), "caf\u00e9"),
    ({1: [math.nan, np.datetime64("NaT")]}, {"1": [None, None]}),
    (decimal.Decimal("2.0"), 2),
    (decimal.Decimal("2.5"), 2.5),
    (datetime.date(2024, 1, 2), "2024-01-02"),
    (pyarrow.scalar(["a"]), ["a"]),
]


@pytest.mark.parametrize(("value", "plain"), VALUES)
def test_values_of_python(value, plain):
    assert python_rows([{"x": value}, "a"]) == [{"x": plain}, {"text": "a"}]
    assert json.loads(next(json_lines(python_rows([{"x": value}])))) == {"x": plain}


def test_frames_are_their_rows():
    rows = [{"text": "a", "n": [1]}, {"text": None, "n": None}]
    table = pyarrow.Table.from_pylist(rows)
    assert python_rows(table) == python_rows(table.to_batches()[0]) == rows
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", None], "n": [pandas.NaT, pandas.NA]})
    assert python_rows(frame) == [{"text": "a", "n": None}, {"text": None, "n": None}]
    with pytest.raises(ValueError, match="a, a: a name is there twice"):
        python_rows(pandas.DataFrame([[1, 2]], columns=["a", "a"]))


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (["a", 1], TypeError, "row 1: 1 is neither a dict nor a text"),
        ({"text": "a"}, TypeError, "a list of rows is required, not one dict"),
        ([{"x": ["a", "\ud83d"]}], ValueError, "row 0: 'x' is not Unicode"),
        (["a", b"\xff"], ValueError, "row 1: 'text' is not Unicode"),
        ([{}, {"x": [object()]}], TypeError, r"row 1: 'x' is \[.*JSON lacks"),
        ([{"x": math.inf}], TypeError, "row 0: 'x' is inf, which JSON lacks"),
    ],
)
def test_rows_of_python_that_are_wrong(rows, error, message):
    with pytest.raises(error, match=message):
        list(json_lines(python_rows(rows)))


@pytest.mark.parametrize("separator", ";\t|")
def test_read_table_with_other_separators(tmp_path, separator):
    lines = ["text,label", '"a, ""b"" , c",x', '"two\nlines",y']
    lines = [separator.join(line.rsplit(",", 1)) for line in lines]
    source = write(tmp_path, "a.csv", "\n".join(lines))
    assert rows(source, ["text", "label"]) == [
        {"text": 'a, "b" , c', "label": "x"},
        {"text": "two\nlines", "label": "y"},
    ]
    assert rows(source) == rows(source, ["text", "label"])


@pytest.mark.parametrize(
    "header", ["label;text;weight, in kg", '"a, b, c, d";label;text', "label;text"]
)
def test_a_comma_in_the_header_separates_nothing(tmp_path, header):
    fields = {"label": "x", "text": "a, b", "weight, in kg": "3", "a, b, c, d": ""}
    names = [name.strip('"') for name in header.split(";")]
    line = ";".join(fields[name] for name in names)
    source = write(tmp_path, "a.csv", f"{header}\n{line}\n")
    (row,) = rows(source, ["text", "label"])
    assert row == {name: fields[name] for name in names}


@pytest.mark.parametrize(
    ("form", "content"),
    [("csv", 'text,label\n"a, b",x\n'), ("tsv", 'text\tlabel\n"a\tx\n')],
)
@pytest.mark.parametrize("name", ["a.txt", "a", "a.tsv", "a.csv", "a.data.gz"])
def test_format_by_name(tmp_path, form, content, name):
    data = content.encode()
    source = write(tmp_path, name, gzip.compress(data) if name[-3:] == ".gz" else data)
    wanted = ColumnSpec(("text", "label"), format=form)
    text = "a, b" if form == "csv" else '"a'
    assert [r.fields for r in read_table(source, wanted)] == [
        {"text": text, "label": "x"}
    ]


def test_tsv_may_be_quoted_as_csv_by_name(tmp_path):
    """As pandas writes it."""
    file = io.StringIO()
    table = [("text", "label"), ('a "b"', "x"), ("c\td", "y"), ("e\nf", "z")]
    csv.writer(file, delimiter="\t", lineterminator="\n").writerows(table)
    source = write(tmp_path, "a.tsv", file.getvalue())
    records = read_table(source, ColumnSpec(("text", "label"), format="csv"))
    assert [tuple(record.fields.values()) for record in records] == table[1:]


def test_fields_beyond_those_of_the_first_line(tmp_path, caplog):
    """As in the STS benchmark's files."""
    lines = ["news\t5.0\ta\tb", 'news\t1.0\t"c\td\tsource\t', "x\t2.0\te\tf\tg"]
    source = write(tmp_path, "sts.csv", "\n".join(lines))
    records = read_table(source, ColumnSpec(("2", "3", "1"), format="tsv"))
    assert [record.fields["3"] for record in records] == ["b", "d", "f"]
    assert {len(record.fields) for record in records} == {4}
    (said,) = caplog.messages
    assert f"{source}:2: has 6 fields; only the first 4 are read" in said


def test_tfds(tmp_path, make_builder):
    features = {
        "text": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=["neg", "pos"]),
        "endings": tfds.features.Sequence(tfds.features.Text()),
        "number": np.int32,
    }
    given = [
        {"text": "é", "label": 1, "endings": ["a", "ü"], "number": -1},
        {"text": "", "label": -1, "endings": [], "number": 2},
    ]
    source = f"tfds:{make_builder(tmp_path, 'mine', given, features)}:train"
    first, second = read_table(source, ColumnSpec(("text", "label")))
    assert first == (f"{source}:1", {**given[0], "label": "pos"})
    assert second == (f"{source}:2", {**given[1], "label": None})
    json.dumps([first, second])  # nothing of numpy is left
    assert rows(source + "[1:]") == [second.fields]
    assert "its splits are train" in error(source + "ing")
