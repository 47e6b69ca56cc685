"""An output file that grows in OUTPUT.part, from where the same command resumes.

OUTPUT.part.json has the work that the rows in OUTPUT.part belong to, and how many of
them are complete. It is replaced after each window of rows. After a kill at any moment,
what follows the last complete window is dropped and computed again, in the batches of
an undisturbed run. So the output is the same byte for byte.
"""

import contextlib
import fcntl
import hashlib
import itertools
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from bert_jax.data.tables import BY_NAME, Record, Row
from bert_jax.errors import UserError
from bert_jax.runtime import processes, signals, storage
from bert_jax.tasks import row_files

log = logging.getLogger(__name__)

Work = Mapping[str, Any]  # settings that decide the answers, in JSON, by readable names
_ADVICE = "delete it to start again, or name another --output"


class Output:
    """A text file of answers. A resumable part is kept when the program ends.

    Attributes:
      file: File that `row_files.row_writer` writes to.
      resumes: Whether the same command resumes it.
      rows: Number of rows written in earlier attempts.
      columns: Names of a table's columns, once its first row is written.
    """

    def __init__(self, file: Any, part: Path | None = None, state: Work | None = None):
        """Stores its arguments.

        Args:
          file: File to write to, after its last complete row.
          part: The part's path. None means that it cannot be resumed.
          state: Content of the part's state file: `work` and, after a window, `rows`,
            `digest` (of their input), `columns` and `bytes`.
        """
        state = state or {}
        self.file, self.resumes, self._part = file, part is not None, part
        self.rows, self.columns = state.get("rows", 0), state.get("columns", [])
        self._state, self._digest = dict(state), hashlib.sha256()

    def rest(self, rows: Iterable[Record]) -> Iterator[Record]:
        """Returns the rows that are not written yet.

        Raises:
          UserError: The rows before them are not the written ones.
        """
        rest = iter(rows)
        for row in itertools.islice(rest, self.rows):
            self._add(row.fields)
        if self.rows and self._digest.hexdigest() != self._state["digest"]:
            raise UserError(
                f"{self._part}: its {self.rows:,} rows are not the first ones of this "
                f"input; {_ADVICE}"
            )
        return rest

    def commit(self, rows: Sequence[Row]) -> None:
        """Declares these further rows complete: their answers are in `file`."""
        self.rows += len(rows)
        self.file.flush()
        for row in rows:
            self._add(row)
        if self._part is not None and processes.is_first():
            self._state |= {
                "rows": self.rows,
                "bytes": os.fstat(self.file.fileno()).st_size,
                "digest": self._digest.hexdigest(),
                "columns": self.columns,
            }
            _save(self._part, self._state)

    def _add(self, row: Row) -> None:
        self._digest.update(repr(row).encode() + b"\n")


@contextlib.contextmanager
def open_output(source: str, target: str, work: Callable[[], Work]) -> Iterator[Output]:
    """Opens an output, which replaces `target` once it is complete.

    If source and target are files, rows are first written to a part file. Pipes,
    buckets and standard output are written as in `row_files.open_output`.

    Args:
      source: The input, which is read again when the work is resumed.
      work: Function that returns the settings that an earlier attempt must share with
        this one.

    Raises:
      UserError: The part file belongs to other work, or to another program.
    """
    if not processes.of_first(_is_resumable(source, target)):
        with row_files.open_output(target) as file:
            yield Output(file)
        return
    whole = Path(os.path.realpath(storage.output_path(target)))
    # A file's name has at most 255 bytes.
    name = whole.name.encode()[:240].decode(errors="ignore")
    part = whole.with_name(f"{name}.part")
    if not processes.is_first():
        state = processes.of_first(None)
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield Output(nowhere, part, state)
        return
    if part.exists() and part.stat().st_size and not _state_path(part).exists():
        raise UserError(f"{part}: not a part that --mode=predict left; move it away")
    with contextlib.ExitStack() as stack:
        stack.enter_context(storage.name_full_disk(part))
        file = stack.enter_context(part.open("a", encoding="utf-8"))
        _lock(file, part)
        stack.enter_context(signals.clean_up_on_signal(lambda: _leave(part)))
        state = processes.of_first(_recall(part, json.loads(json.dumps(work()))))
        file.truncate(state.get("bytes", 0))
        _save(part, state)
        output = Output(file, part, state)
        if output.rows:
            log.info("%s: %s rows are answered; resuming", part, f"{output.rows:,}")
        try:
            yield output
            file.flush()
            part.replace(whole)
            _state_path(part).unlink()
        except BaseException:
            _leave(part)
            raise


def _leave(part: Path) -> None:
    """Reports the rows of a part that the same command resumes. Deletes an empty
    one."""
    path = _state_path(part)
    rows = json.loads(path.read_text()).get("rows", 0) if path.exists() else 0
    if rows:
        said = "%s: %s rows are answered; the same command resumes from there"
        log.warning(said, part, f"{rows:,}")
    else:
        part.unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def _state_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _save(part: Path, state: Work) -> None:
    storage.write_atomically(_state_path(part), json.dumps(state))


def _is_resumable(source: str, target: str) -> bool:
    """Returns whether both are files, so that input and output can be read again."""
    if "-" in (source, target) or storage.in_bucket(target):
        return False
    files = [text for text in (source, target) if not text.startswith(BY_NAME)]
    places = [storage.storage_path(text) for text in files]
    return all(place.is_file() or not place.exists() for place in places)


def _lock(file: TextIO, part: Path) -> None:
    """Locks the part until it is closed.

    Raises:
      UserError: Another process has locked it, or has just finished it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_there = os.path.samestat(os.fstat(file.fileno()), os.stat(part))
    except (BlockingIOError, FileNotFoundError):
        is_there = False
    if not is_there:
        raise UserError(f"{part}: another process writes it; wait for its end")


def _recall(part: Path, work: dict[str, Any]) -> dict[str, Any]:
    """Returns the state after the last complete window, or one without rows.

    Raises:
      UserError: The part belongs to other work.
    """
    path = _state_path(part)
    state = json.loads(path.read_text()) if path.exists() else {}
    if not state.get("rows") or part.stat().st_size < state["bytes"]:
        return {"work": work}  # the part lost bytes in a power failure, or has none
    there = state["work"]
    names = there.keys() | work.keys()
    if differing := sorted(n for n in names if there.get(n) != work.get(n)):
        raise UserError(
            f"{part}: holds {state['rows']:,} rows of other work, which differs in "
            f"{', '.join(differing)}; {_ADVICE}"
        )
    return state
