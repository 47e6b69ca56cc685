"""An output file that grows in OUTPUT.part, from where the same command resumes.

OUTPUT.part.log records in JSON lines the work that the rows in OUTPUT.part belong to,
and after each window of rows how many are complete. After a kill at any moment, the
rest after the last complete window is dropped and computed again, in the batches of an
undisturbed run. So the output is the same byte for byte.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from bert_jax.data.tables import BY_NAME
from bert_jax.errors import UserError
from bert_jax.runtime import processes, storage
from bert_jax.tasks import row_files
from bert_jax.tasks.row_files import Line

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

    def __init__(
        self,
        file: Any,
        state: Mapping[str, Any] | None = None,
        journal: TextIO | None = None,
        name: str = "",
    ):
        """Stores its arguments.

        Args:
          file: File of a part, opened for appending after its last complete row.
          state: Content of the part's log: `rows`, `digest` (of their input) and
            `columns`. None means that it cannot be resumed.
          journal: The log, opened the same way, or None in processes that do not write.
          name: The part's name, for errors.
        """
        self.file, self.resumes = file, state is not None
        state = state or {}
        self.rows, self.columns = state.get("rows", 0), state.get("columns", [])
        self._journal, self._digest, self._name = journal, state.get("digest"), name
        self._digests: deque[Any] = deque()  # after each row that is being answered

    def rest(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yields the lines whose rows are not written yet.

        Raises:
          UserError: The lines before them are not those of the written rows.
        """
        if not self.resumes:
            yield from lines
            return
        digest, done, last = hashlib.sha256(), self._digest, 0
        for last, line in enumerate(lines, start=1):
            digest.update(line[1].encode() + b"\n")
            if last == self.rows and digest.hexdigest() != done:
                break
            if last > self.rows:
                self._digests.append(digest.copy())
                yield line
        else:
            if last >= self.rows:
                return
        raise UserError(
            f"{self._name}: its {self.rows:,} rows are not the first ones of this "
            f"input; {_ADVICE}"
        )

    def commit(self, count: int) -> None:
        """Declares `count` more rows complete, which have been written to `file`."""
        self.rows += count
        self.file.flush()
        digests = [self._digests.popleft() for _ in range(count) if self._digests]
        if self._journal is not None and digests:
            state = {
                "rows": self.rows,
                "bytes": os.fstat(self.file.fileno()).st_size,
                "digest": digests[-1].hexdigest(),
                "columns": self.columns,
            }
            _write(self._journal, state)


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
    if not processes.is_first():
        state = processes.of_first(None)
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield Output(nowhere, state, None, f"{target}.part")
        return
    whole = Path(os.path.realpath(storage.output_path(target)))
    # A file's name has at most 255 bytes.
    name = whole.name.encode()[:240].decode(errors="ignore")
    part, journal = (whole.with_name(name + x) for x in (".part", ".part.log"))
    if part.exists() and part.stat().st_size and not journal.exists():
        raise UserError(f"{part}: not a part that --mode=predict left; move it away")
    with (
        storage.name_full_disk(part),
        part.open("a", encoding="utf-8") as file,
        journal.open("a+", encoding="utf-8") as log_file,
    ):
        _lock(file, part)
        state = _recall(log_file, json.loads(json.dumps(work())), file, part)
        output = Output(file, processes.of_first(state), log_file, str(part))
        if output.rows:
            log.info("%s: %s rows are answered; resuming", part, f"{output.rows:,}")
        try:
            yield output
            file.flush()
            part.replace(whole)
            journal.unlink()
        except BaseException:  # a signal, too
            if output.rows:
                said = "%s: %s rows are answered; the same command resumes from there"
                log.warning(said, part, f"{output.rows:,}")
            else:
                part.unlink(missing_ok=True)
                journal.unlink(missing_ok=True)
            raise


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


def _recall(journal: TextIO, work: Work, file: TextIO, part: Path) -> dict[str, Any]:
    """Returns the state after the last complete window, and cuts off the rest.

    Raises:
      UserError: The part belongs to other work.
    """
    state: dict[str, Any] = {}
    size = os.fstat(file.fileno()).st_size
    journal.seek(0)
    with contextlib.suppress(ValueError):  # the last line may be cut off
        for line in journal:
            values = json.loads(line)
            state |= values if values.get("bytes", 0) <= size else {}
    if not state.get("rows"):
        state = {"work": work}
    there = state["work"]
    names = there.keys() | work.keys()
    if differing := sorted(n for n in names if there.get(n) != work.get(n)):
        raise UserError(
            f"{part}: holds {state['rows']:,} rows of other work, which differs in "
            f"{', '.join(differing)}; {_ADVICE}"
        )
    file.seek(file.truncate(state.get("bytes", 0)))
    journal.truncate(0)
    _write(journal, state)
    return state


def _write(journal: TextIO, values: Mapping[str, Any]) -> None:
    journal.write(json.dumps(values) + "\n")
    journal.flush()
