"""Tables: rows whose columns have any length, in memory or in files.

A ragged column has the values of all rows, one after the other, and where each row
ends. In a folder it is COLUMN.npy and COLUMN.ends.npy, which are mapped, not read.
"""

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Int


class Column(NamedTuple):
    """A column: `values` [rows, ...], or [values, ...] and `ends` if it is ragged."""

    values: np.ndarray
    ends: np.ndarray | None = None  # where each row ends

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.values if self.ends is None else self.ends)

    def sizes(self) -> Int[np.ndarray, " rows"]:
        """Returns the number of values of each row, in a ragged column."""
        assert self.ends is not None
        sizes = self.ends.copy()
        sizes[1:] -= self.ends[:-1]
        return sizes

    def take(self, rows: Int[np.ndarray, " taken"]) -> "Column":
        """Returns these rows. One past the last is empty, or 0."""
        real = rows < self.rows
        rows = np.where(real, rows, 0)
        if self.ends is None:
            values = self.values[rows]
            values[~real] = 0
            return Column(values)
        stops = self.ends[rows]
        sizes = (stops - np.where(rows > 0, self.ends[rows - 1], 0)) * real
        ends = np.cumsum(sizes)
        taken = np.repeat(stops - ends, sizes) + np.arange(sizes.sum())
        return Column(self.values[taken], ends)

    def pad(self, length: int, fill: int = 0) -> np.ndarray:
        """Returns a ragged column as an array [rows, length, ...]."""
        shape = (self.rows, length, *self.values.shape[1:])
        padded = np.full(shape, fill, self.values.dtype)
        padded[np.arange(length) < self.sizes()[:, None]] = self.values
        return padded


class Table(dict[str, Column]):
    """Columns by name, all with the same rows."""

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, Any]]) -> "Table":
        """Stores rows. Integers are ragged in their last axis, numbers and floats not.

        Args:
          rows: At least one row, all with the same columns.
        """
        table = cls()
        for name in rows[0]:
            first = np.asarray(rows[0][name])
            values = [row[name] for row in rows]
            if first.dtype.kind == "f" or not first.ndim:
                dtype = np.float32 if first.dtype.kind == "f" else np.int32
                table[name] = Column(np.asarray(values, dtype))
            else:
                arrays = [np.asarray(x) for x in values]
                every = np.concatenate(arrays, axis=-1).astype(np.int32)
                ends = np.cumsum([x.shape[-1] for x in arrays])
                table[name] = Column(np.moveaxis(every, -1, 0), ends)
        return table

    @classmethod
    def open(cls, folder: Path, columns: Collection[str] = ()) -> "Table":
        """Maps the columns that `write_table` wrote to a folder.

        Args:
          columns: Names that must be there. NAME.ends makes a column ragged.

        Raises:
          OSError, EOFError, ValueError: A file is missing or damaged.
        """
        arrays = {x.stem: np.load(x, mmap_mode="r") for x in folder.glob("*.npy")}
        if not arrays:
            raise FileNotFoundError(f"{folder} has no columns")
        table = cls(
            (name, Column(values, arrays.get(f"{name}.ends")))
            for name, values in arrays.items()
            if not name.endswith(".ends")
        )
        if lacking := sorted({*columns} - arrays.keys()):
            raise ValueError(f"it has no {', '.join(lacking)}")
        if len({column.rows for column in table.values()}) > 1:
            raise ValueError("its columns have different numbers of rows")
        return table

    @property
    def rows(self) -> int:
        """Number of rows."""
        return next(iter(self.values())).rows

    def digest(self) -> str:
        """Returns a digest that identifies the rows and their order."""
        hashed = hashlib.sha256()
        for name, column in sorted(self.items()):
            for array in filter(lambda x: x is not None, column):
                hashed.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()

    def take(self, rows: Int[np.ndarray, " taken"]) -> "Table":
        """Returns these rows. Those past the last are empty, or 0."""
        return Table((name, column.take(rows)) for name, column in self.items())


@contextlib.contextmanager
def write_table(folder: Path) -> Iterator[Callable[[Table], None]]:
    """Makes a folder, and yields a function that adds rows to the table there."""
    folder.mkdir()
    files: dict[str, _GrowingFile] = {}
    with contextlib.ExitStack() as stack:

        def write(name: str, values: np.ndarray) -> None:
            if name not in files:
                file = stack.enter_context((folder / f"{name}.npy").open("wb"))
                files[name] = _GrowingFile(file, values)
            files[name].add(values)

        def add(table: Table) -> None:
            for name, (values, ends) in table.items():
                if ends is not None:
                    before = files[name].size if name in files else 0
                    write(f"{name}.ends", ends + before)
                write(name, values)

        yield add
        for file in files.values():
            file.write_header()


class _GrowingFile:
    """A .npy file to which values like the first ones are added."""

    def __init__(self, file: BinaryIO, first: np.ndarray):
        self._file, self._dtype, self.size = file, first.dtype.str, 0
        self.write_header()

    def add(self, values: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(values).data)
        self.size += len(values)

    def write_header(self) -> None:
        """Writes the size. NumPy leaves room for any size there."""
        self._file.seek(0)
        header = {"descr": self._dtype, "fortran_order": False, "shape": (self.size,)}
        np.lib.format.write_array_header_1_0(self._file, header)
