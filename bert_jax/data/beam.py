"""Maps a function over chunks on Apache Beam: the same results as `workers` gives.

The chunks lie in files in a folder that all workers share, and so do the results, each
renamed to its name when it is whole. So the pipeline carries numbers only, and memory
does not grow with the text. A bundle that Beam repeats finds what it has already
written. Beam runs in a process group of its own: it can be ended at once, with its
workers, and its end is seen even where Beam waits forever for a worker that died.
"""

import contextlib
import io
import logging
import multiprocessing
import os
import pickle
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from bert_jax.data import workers
from bert_jax.data.shards import Chunk, Job, Shard, disk_error
from bert_jax.errors import UserError

try:
    logging.disable(logging.WARNING)  # of a client of Google's, which few have
    import apache_beam
    from apache_beam.metrics import Metrics
    from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
    from apache_beam.runners.runner import PipelineRunner, create_runner
finally:
    logging.disable(logging.NOTSET)

_FIELD = "config.corpus.runner"
_OPTIONS = "config.corpus.beam_options"
_FORM = "write Beam's options as ('--NAME=VALUE',)"
_END_SECONDS = 30  # to end well, before the process is killed


class Runner(NamedTuple):
    """One of Beam's runners, as the config names it."""

    name: str
    options: tuple[str, ...]

    def check(self) -> None:
        """Raises UserError if Beam does not know the runner or an option."""
        self.make()
        for option in self.options:
            if option.startswith("--runner"):
                raise UserError(f"{_OPTIONS}: {option}: name the runner in {_FIELD}")
            if not option.startswith("--"):
                raise UserError(f"{_OPTIONS}: {option!r}: {_FORM}")
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                self.parsed().get_all_options(display_warnings=True)
        except SystemExit as error:  # as argparse ends
            line = said.getvalue().strip().rpartition("\n")[2].partition("error: ")[2]
            raise UserError(f"{_OPTIONS}: {line or self.options}; {_FORM}") from error

    def make(self) -> PipelineRunner:
        try:
            runner = create_runner(self.name)
            if not isinstance(runner, PipelineRunner):
                raise TypeError(f"{type(runner).__name__} is no runner")
            return runner
        except (ValueError, ImportError, AttributeError, TypeError) as error:
            raise UserError(
                f"{_FIELD}={self.name}: not a runner of Beam that can be loaded here "
                f"({error}); FnApiRunner needs nothing else"
            ) from error

    def parsed(self) -> PipelineOptions:
        options = PipelineOptions(list(self.options))
        if options.view_as(DirectOptions).direct_num_workers == 1:
            return options
        # Beam's own default, in_memory, would run them one after the other.
        mode = "--direct_running_mode=multi_processing"
        return PipelineOptions([mode, *self.options])


def ordered_map(
    runner: Runner,
    folder: Path,
    function: Callable[[Job, Chunk], Shard],
    job: Job,
    chunks: Iterable[Chunk],
) -> Generator[Shard, None, None]:
    """Yields function(job, chunk) for each chunk, in the order of the chunks.

    All chunks are written to files first. One or two run in this process. An exception
    ends Beam and its workers at once, and so does closing the generator.

    Args:
      folder: every worker must see it under this path; it is left as it was.
      function: in an importable module, not in the main program; it must be safe to
        call twice, also at the same time.

    Raises:
      UserError: the pipeline failed; a worker died or does not see the folder.
      OSError: a disk is full.
    """
    place = folder.absolute() / "beam"
    place.mkdir()
    try:
        count = 0
        for chunk in chunks:
            _store(chunk, _item(place, count))
            count += 1
        if count < 3:
            for number in range(count):
                yield function(job, _load(_item(place, number)))
            return
        _store(job, place / "job")
        (place / "log").touch()
        with _started(runner, place, function, count) as (process, messages):
            for number in range(count):
                _wait(_result(place, number), process, messages, runner)
                yield _load(_result(place, number))
            # Every result is there: how the runner ends no longer matters.
            process.join(_END_SECONDS)
    finally:
        shutil.rmtree(place)


def _item(place: Path, number: int) -> Path:
    return place / f"chunk-{number}"


def _result(place: Path, number: int) -> Path:
    return place / f"shard-{number}"


def _load(path: Path) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)


def _store(value: object, path: Path) -> None:
    """Writes a file that appears when it is whole."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with new.open("wb") as file:
        pickle.dump(value, file)
    new.rename(path)


@contextlib.contextmanager
def _started(
    runner: Runner, place: Path, function: Callable[[Job, Chunk], Shard], count: int
) -> Iterator[tuple[SpawnProcess, Connection]]:
    """Runs the pipeline in a new process; at the end kills what is left of it."""
    context = multiprocessing.get_context("spawn")
    messages, sender = context.Pipe(duplex=False)
    work = (runner, place, function, count, sender)
    process = context.Process(target=_run, args=work)
    with workers.without_main():
        process.start()
    sender.close()
    try:
        yield process, messages
    finally:
        process.terminate()
        process.join(_END_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()


def _wait(
    path: Path, process: SpawnProcess, messages: Connection, runner: Runner
) -> None:
    """Returns once a file is there.

    Raises:
      UserError, OSError: see `ordered_map`.
    """
    while not path.exists():
        process.join(0.1)
        if process.exitcode is None or path.exists():
            continue
        try:
            message = messages.recv()
        except EOFError:
            message = "its process died, perhaps because memory ran out"
        if not message:
            message = f"it ended without {path}: the workers must share this folder"
        if error := disk_error(message):
            raise error
        with tempfile.NamedTemporaryFile(
            prefix="bert_jax_beam_", suffix=".log", delete=False
        ) as log:
            log.write((path.parent / "log").read_bytes())
        raise UserError(
            f"{_FIELD}={runner.name}: {message}; nothing half-written stays: run the "
            f"same command again (Beam's messages: {log.name})"
        )


# What follows runs in the process of the pipeline, and `_Write` on Beam's workers.


class _Write(apache_beam.DoFn):
    """Calls the function on chunks by their number, and stores what it returns."""

    def __init__(self, place: Path, function: Callable[[Job, Chunk], Shard]):
        self._place = place
        self._function = function

    def setup(self) -> None:
        if not (self._place / "job").exists():
            raise UserError(
                f"{self._place} is not on this worker: config.corpus.data_dir must be "
                "a folder that the workers share, under the same path"
            )
        self._job = _load(self._place / "job")

    def process(self, number: int) -> None:
        path = _result(self._place, number)
        if path.exists():  # the bundle is repeated
            shard = _load(path)
        else:
            shard = self._function(self._job, _load(_item(self._place, number)))
            _store(shard, path)
        for name, amount in shard.totals.items():
            Metrics.counter("bert_jax", name).inc(amount)


def _run(
    runner: Runner,
    place: Path,
    function: Callable[[Job, Chunk], Shard],
    count: int,
    sender: Connection,
) -> None:
    """Runs the pipeline; sends what went wrong, or an empty text."""
    os.setsid()  # a group, with the workers that the runner starts
    result: Any = None

    def end(*_: object) -> NoReturn:
        if result is not None:
            result.cancel()
        _kill_group()

    def fail(text: str) -> NoReturn:
        sender.send(text)
        _kill_group()

    def thread_failed(args: threading.ExceptHookArgs) -> None:
        threading.__excepthook__(args)
        # Beam would wait forever for the worker that this thread has started.
        if args.thread is not None and args.thread.name == "run_worker":
            fail("a worker process died, perhaps because memory ran out")

    signal.signal(signal.SIGTERM, end)
    threading.excepthook = thread_failed
    workers.end_with_parent(_kill_group)
    with (place / "log").open("wb") as log:  # the workers inherit it
        os.dup2(log.fileno(), sys.stderr.fileno())
    try:
        pipeline = apache_beam.Pipeline(runner=runner.make(), options=runner.parsed())
        (
            pipeline
            | apache_beam.Create(range(count))
            | apache_beam.Reshuffle()
            | apache_beam.ParDo(_Write(place, function))
        )
        result = pipeline.run()
        result.wait_until_finish()
    except Exception as error:  # a runner may raise anything; the parent gets a line
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [repr(error)]
        fail(lines[-1].partition(" [while running")[0])
    sender.send("")


def _kill_group() -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("killed")
