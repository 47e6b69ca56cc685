"""Data sets on the Hugging Face Hub, by their parquet files.

    OWNER/NAME[@REVISION][:CONFIG]

A split's files are CONFIG/SPLIT-*.parquet or CONFIG/SPLIT/*.parquet. Without a CONFIG
it is `data`, `default`, `plain_text` or no folder. Where the revision has none, the
Hub's own conversion has (refs/convert/parquet).
"""

import contextlib
import json
import math
import os
import pathlib
import re
from collections.abc import Collection, Iterator
from typing import Any

from bert_jax.errors import UserError, first_line
from bert_jax.runtime import hub, storage

_CONVERTED = "refs/convert/parquet"
_ROWS = 256  # read at a time


def parquet_files(name: str, split: str) -> list[pathlib.Path]:
    """Returns a split's parquet files, in order, downloaded unless in the cache.

    The list is empty if the data set has none.

    Raises:
      UserError: See `hub.download_snapshot`.
    """
    name, _, config = name.partition(":")
    homes = (config,) if config else ("data", "default", "plain_text", "")
    patterns = tuple(
        f"{home}/{split}{end}".lstrip("/")
        for home in homes
        for end in ("-*.parquet", "/*.parquet")
    )
    for revision in ("",) if "@" in name else ("", f"@{_CONVERTED}"):
        with contextlib.suppress(*[hub.NoRevision] if revision else ()):
            folder = hub.download_snapshot(
                f"{hub.PREFIX}{name}{revision}", "dataset", patterns
            )
            # The first folder that has any: others may repeat the rows.
            found = (sorted(folder.glob(pattern)) for pattern in patterns)
            if paths := next(filter(None, found), []):
                total = re.search(r"-of-0*(\d{1,9})\b", paths[0].name)
                if total and len(paths) < int(total[1]):
                    raise UserError(
                        f"{paths[0].parent}: has {len(paths)} of the {total[1]} files "
                        f"({paths[0].name}); name a revision that has all"
                    )
                return paths
    return []


def split_files(name: str, split: str) -> list[pathlib.Path]:
    """Returns `parquet_files`, or raises UserError if there are none."""
    if paths := parquet_files(name, split):
        return paths
    raise UserError(
        f"hf:{name}: no parquet files of a split {split}; its page on the Hub shows "
        "its configs (hf:OWNER/NAME:CONFIG) and splits"
    )


def split_rows(
    name: str, split: str, columns: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a split, as `parquet_rows` does. Raises as `split_files`."""
    for path in split_files(name, split):
        yield from parquet_rows(path, columns)


def has_split(name: str, split: str) -> bool:
    """Returns whether there is such a split. Raises as `parquet_files`."""
    return bool(parquet_files(name, split))


def parquet_rows(
    path: str | storage.Path, columns: Collection[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a parquet file, one at a time.

    Bytes are UTF-8 text, classes have their names, and -1 is None.

    Args:
      columns: Columns to read: others may be large, such as vectors. Empty means all,
        and so do columns that the file lacks.

    Raises:
      UserError: The file cannot be read or is damaged.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        with storage.open_binary(storage.storage_path(path)) as file:
            table = parquet.ParquetFile(file)
            metadata = table.schema_arrow.metadata or {}
            about = json.loads(metadata.get(b"huggingface", b"{}"))
            features = about.get("info", {}).get("features", {})
            known = {*columns} <= {*table.schema_arrow.names}
            chosen = [*columns] if columns and known else None
            for batch in table.iter_batches(_ROWS, columns=chosen):
                for row in batch.to_pylist():
                    yield _convert_value(row, features)
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        # A path in the Hub's cache is a link. A new download replaces what it names.
        raise UserError(
            f"{path}: cannot be read as parquet ({first_line(error)}); if it is cut "
            f"off, delete {os.path.realpath(path)}, and get it again"
        ) from error


def _convert_value(value: Any, feature: Any) -> Any:
    """Returns the value as JSON has it: text for bytes, None for NaN and infinity, the
    name of a class.

    Args:
      feature: Its type, as `datasets` writes it into the file's metadata: an object, or
        a list of the type of a list's items.
    """
    if isinstance(feature, list):
        feature = feature[0] if feature else {}
    feature = feature if isinstance(feature, dict) else {}
    feature = feature.get("feature", feature) if "_type" in feature else feature
    if isinstance(value, list):
        return [_convert_value(item, feature) for item in value]
    if isinstance(value, dict):
        return {
            name: _convert_value(item, feature.get(name))
            for name, item in value.items()
        }
    if feature.get("_type") == "ClassLabel" and isinstance(value, int):
        names = feature["names"]
        return str(names[value]) if 0 <= value < len(names) else None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.decode("utf-8") if isinstance(value, bytes) else value
