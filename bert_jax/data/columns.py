"""Tables of rows: how those are named that are no files, and which columns are read."""

import re
from typing import NamedTuple

BY_NAME = ("tfds:", "hf:")  # what data sets that are no files begin with


def is_number(column: str) -> bool:
    """Whether it is the number of a column, from 0."""
    return bool(re.fullmatch("0|[1-9][0-9]*", column))


class Wanted(NamedTuple):
    """Columns by name, or all of them by number: of files without a header."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    format: str = ""  # csv, tsv or jsonl; empty: by the file's ending
    overrides: bool = True  # the format also holds for rows in a .csv or .tsv

    @property
    def numbers(self) -> tuple[str, ...]:
        """All of them if each is a number, else none."""
        every = (*self.required, *self.optional)
        return every if all(map(is_number, every)) else ()


ANY = Wanted()  # whatever columns the header names
