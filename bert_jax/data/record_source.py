"""Reads the shards of prepared data."""

import contextlib
from collections.abc import Iterator, Sequence

from array_record.python.array_record_data_source import ArrayRecordDataSource

from bert_jax.data import records
from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path


class Source:
    """The records of a split in a folder; UserError where they cannot be read."""

    def __init__(self, folder: Path, split: str):
        self._folder = folder
        files = sorted(map(str, folder.glob(f"*-{split}.array_record-*")))
        with self._named():
            if not files or len(files) != int(files[0].rpartition("-")[2]):
                raise RuntimeError(f"not all files of {split} are there")
            self._source = ArrayRecordDataSource(files)

    def __len__(self) -> int:
        return len(self._source)

    def read(self, rows: Sequence[int]) -> records.Pairs:
        with self._named():  # the reader fails on an empty list
            return records.parse(self._source.__getitems__(list(rows)) if rows else ())

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # ArrayRecord's, of a disk or a bucket
            raise UserError(
                f"{self._folder}: the prepared data cannot be read ({error}); start "
                "again, or delete this folder first to prepare the data again"
            ) from error
