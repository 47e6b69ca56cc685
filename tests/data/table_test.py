"""Tables: the same rows in memory, in files, and padded."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.data.table import Column, Table, write_table

ROWS = st.lists(
    st.tuples(st.lists(st.integers(0, 999), max_size=6), st.integers(0, 9)), min_size=1
)


def table_of(rows):
    ends = np.cumsum([len(values) for values, _ in rows])
    values = np.array([x for values, _ in rows for x in values], np.uint16)
    return Table(ids=Column(values, ends), label=Column(np.array([x for _, x in rows])))


def rows_of(table):
    parts = np.split(table["ids"].values, table["ids"].ends[:-1])
    labels = table["label"].values.tolist()
    return [(x.tolist(), label) for x, label in zip(parts, labels, strict=True)]


@settings(max_examples=60, deadline=None)
@given(ROWS, st.lists(st.integers(0, 12), min_size=1))
def test_taken_rows_are_those_of_a_loop(rows, indices):
    taken = table_of(rows).take(np.array(indices))
    expected = [rows[i] if i < len(rows) else ([], 0) for i in indices]
    assert rows_of(taken) == expected
    padded = taken["ids"].pad(7, fill=5)
    assert padded.dtype == np.uint16
    assert padded.tolist() == [x + [5] * (7 - len(x)) for x, _ in expected]


@settings(max_examples=30, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4))
def test_file_has_the_rows_added_to_it(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("table") / "train"
    with write_table(folder) as add:
        for part in parts:
            add(table_of(part))
    table = Table.open(folder)
    assert isinstance(table["ids"].values, np.memmap)
    rows = [row for part in parts for row in part]
    assert table.rows == len(rows) and rows_of(table) == rows
    assert table.digest() == table_of(rows).digest()
    assert sorted(path.name for path in folder.iterdir()) == [
        *("ids.ends.npy", "ids.npy", "label.npy")
    ]


def test_digest_is_of_values_and_order():
    rows = [([1, 2], 0), ([3], 1)]
    others = [rows[::-1], [([1], 0), ([2, 3], 1)], [([1, 2], 0), ([3], 2)]]
    assert len({table_of(x).digest() for x in (rows, *others)}) == 4


def test_folder_without_columns_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no columns"):
        Table.open(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("ids.ends.npy", None, "it has no ids.ends"),
        ("label.npy", None, "it has no label"),
        ("ids.npy", b"", "No data left in file"),
        ("label.npy", np.arange(3), "different numbers of rows"),
    ],
)
def test_damaged_folder_is_no_table(tmp_path, name, content, said):
    folder = tmp_path / "train"
    with write_table(folder) as add:
        add(table_of([([1, 2], 0), ([3], 1)]))
    (folder / name).unlink()
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    elif content is not None:
        np.save(folder / name, content)
    with pytest.raises((OSError, EOFError, ValueError), match=said):
        Table.open(folder, ("ids", "ids.ends", "label"))
