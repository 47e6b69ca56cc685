"""An output file that grows in OUTPUT.part, from where the same command resumes.

OUTPUT.part.json has the work that OUTPUT.part belongs to. After a kill at any moment,
the part's complete rows are kept, and as many rows of the input are skipped.
"""

import contextlib
import csv
import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.data.tables import BY_NAME
from bert_jax.errors import UserError
from bert_jax.runtime import processes, signals, storage, untrusted
from bert_jax.tasks import row_files

log = logging.getLogger(__name__)

Work = Mapping[str, Any]  # settings that decide the answers, in JSON, by readable names


class Output(NamedTuple):
    """A text file of answers, for `row_files.row_writer`."""

    file: Any  # open for writing
    # The unfinished file. None means that it cannot be resumed.
    part: Path | None = None
    rows: int = 0  # written in earlier attempts
    columns: Sequence[str] = ()  # of a table whose first row is written


@contextlib.contextmanager
def open_output(source: str, target: str, work: Callable[[], Work]) -> Iterator[Output]:
    """Opens an output, which replaces `target` once it is complete.

    If source and target are files, rows are first written to a part file, which is kept
    when the program ends. Pipes, buckets and standard output are written as in
    `row_files.open_output`.

    Args:
      source: The input, which is read again when the work is resumed.
      work: Function that returns the settings that an earlier attempt must share with
        this one.

    Raises:
      UserError: The part file belongs to other work, or to another program.
    """
    if not processes.broadcast_from_first(_is_resumable(source, target)):
        with row_files.open_output(target) as file:
            yield Output(file)
        return
    complete = Path(os.path.realpath(storage.output_path(target)))
    part, made_by = Path(f"{complete}.part"), Path(f"{complete}.part.json")
    if not processes.is_first():
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield Output(nowhere, part, *processes.broadcast_from_first(None))
        return

    def leave() -> None:
        """Reports the rows that the same command keeps. Deletes a part without any."""
        file.flush()
        if rows := _complete_rows(part, target)[0]:
            said = "%s: %s rows are answered; the same command resumes from there"
            log.warning(said, part, f"{rows:,}")
        else:
            part.unlink()
            made_by.unlink()

    with contextlib.ExitStack() as stack:
        stack.enter_context(storage.name_full_disk(part))
        file = stack.enter_context(part.open("a", encoding="utf-8"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = f"{part}: another process writes it; wait for its end"
            raise UserError(message) from error
        if part.stat().st_size and not made_by.exists():
            raise UserError(
                f"{part}: not a part that --mode=predict left; move it away"
            )
        mine = json.loads(json.dumps(work()))
        rows, columns, size = _read_unfinished(part, made_by, target, mine)
        storage.write_atomically(made_by, json.dumps(mine))
        file.truncate(size)
        stack.enter_context(signals.clean_up_on_signal(leave))
        if rows:
            log.info("%s: %s rows are answered; resuming", part, f"{rows:,}")
        try:
            yield Output(file, part, *processes.broadcast_from_first((rows, columns)))
            file.flush()
            part.replace(complete)
            made_by.unlink()
        except BaseException:
            leave()
            raise


def _read_unfinished(
    part: Path, made_by: Path, target: str, mine: Work
) -> tuple[int, list[str], int]:
    """Returns `_complete_rows` of a part.

    Raises:
      UserError: It belongs to other work than `mine`.
    """
    found = _complete_rows(part, target)
    there = untrusted.read_object(made_by) if found[0] else mine
    names = sorted(there.keys() | mine.keys())
    if differing := [n for n in names if there.get(n) != mine.get(n)]:
        raise UserError(
            f"{part}: holds {found[0]:,} rows of other work, which differs in "
            f"{', '.join(differing)}; delete it to start again, or name another "
            "--output"
        )
    return found


def _is_resumable(source: str, target: str) -> bool:
    """Returns whether both are files, so that input and output can be read again."""
    if "-" in (source, target) or storage.in_bucket(target):
        return False
    files = [text for text in (source, target) if not text.startswith(BY_NAME)]
    places = [storage.storage_path(text) for text in files]
    return all(place.is_file() or not place.exists() for place in places)


def _complete_rows(part: Path, target: str) -> tuple[int, list[str], int]:
    """Returns a part's number of rows, a table's columns, and the bytes of both. A torn
    row is not counted.

    Args:
      target: The output, whose ending is .csv, .tsv, or another one of JSON lines.
    """
    is_commas, is_tabs = target.endswith(".csv"), target.endswith(".tsv")
    records = size = end = quotes = 0
    with part.open("rb") as lines:
        for line in lines:
            end += len(line)
            quotes += line.count(b'"') if is_commas else 0
            # After an odd number of quotes the line ends within a field.
            if line.endswith(b"\n") and quotes % 2 == 0:
                records, size = records + 1, end
    if not (is_commas or is_tabs):
        return records, [], size
    if records < 2:
        return 0, [], 0
    tabs: Any = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    with part.open(encoding="utf-8", newline="\n") as table:
        header = csv.reader(table, **(tabs if is_tabs else {}))
        return records - 1, next(header), size
