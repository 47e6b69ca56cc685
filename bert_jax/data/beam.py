"""A map of a function over chunks on Apache Beam, with the same results as `workers`.

Chunks and results are files in a folder that all workers share. So the pipeline carries
numbers only, and memory does not grow with the text. Beam runs in a separate process
group, so that it can be ended with its workers.
"""

import contextlib
import functools
import multiprocessing
import os
import pickle
import secrets
import shutil
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import apache_beam
from apache_beam.options.pipeline_options import PipelineOptions
from ml_collections import ConfigDict

from bert_jax.data import workers
from bert_jax.data.chunks import Chunk
from bert_jax.data.shards import Job, Shard
from bert_jax.errors import UserError


def pipeline(settings: ConfigDict) -> apache_beam.Pipeline:
    """Returns an empty pipeline of `corpus.runner` with `corpus.beam_options`.

    Args:
      settings: `config.corpus`.

    Raises:
      UserError: Beam does not have the runner, or an option has no dashes.
    """
    # Beam's default runs several workers one after the other.
    options = ["--direct_running_mode=multi_processing", *settings.beam_options]
    for option in options:
        if not option.startswith("--"):
            raise UserError(
                f"config.corpus.beam_options: {option!r}: write Beam's options as "
                "('--NAME=VALUE',)"
            )
    try:
        return apache_beam.Pipeline(settings.runner, PipelineOptions(options))
    except (ValueError, ImportError, AttributeError, TypeError) as error:
        raise UserError(
            f"config.corpus.runner={settings.runner}: Beam cannot load it ({error}); "
            "FnApiRunner needs nothing else"
        ) from error


def ordered_map(
    settings: ConfigDict,
    folder: Path,
    function: Callable[[Job, Chunk], Shard],
    job: Job,
    chunks: Iterable[Chunk],
) -> Generator[Shard, None, None]:
    """Yields function(job, chunk) for each chunk, in their order, when all are there.

    Args:
      settings: `config.corpus`.
      folder: A folder that every worker sees under this path. It is left as it was.
      function: A function in an importable module. It must be safe to call twice.

    Raises:
      UserError: the pipeline failed, or a worker died.
    """
    place = folder.absolute() / f"beam-{function.__name__}"
    place.mkdir()
    try:
        _store((function, job), place / "job")
        count = 0
        for count, chunk in enumerate(chunks, 1):
            _store(chunk, place / f"chunk-{count}")
        _run_apart(settings, place, count)
        for number in range(1, count + 1):
            yield _load(place / f"shard-{number}")
    finally:
        shutil.rmtree(place)


def _run_apart(settings: ConfigDict, place: Path, count: int) -> None:
    """Runs the pipeline in a new process, and at the end kills any that remain."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_run, args=(settings, place, count))
    with workers.without_main():
        process.start()
    assert process.pid is not None
    try:
        process.join()
    finally:
        process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
    if process.exitcode:
        failed = place / "error"
        why = failed.read_text() if failed.exists() else "its process died"
        raise UserError(
            f"config.corpus.runner={settings.runner}: {why}; all workers must see "
            "config.corpus.data_dir under the same path; nothing half-written stays, "
            "so the same command can run again"
        )


def _run(settings: ConfigDict, place: Path, count: int) -> None:
    os.setsid()  # a group, with the workers that the runner starts
    workers.end_with_parent()

    def fail(text: str) -> None:
        (place / "error").write_text(text)
        os._exit(1)  # other threads may wait forever

    def thread_failed(args: threading.ExceptHookArgs) -> None:
        threading.__excepthook__(args)
        # FnApiRunner would wait forever for the worker that this thread has started.
        if args.thread is not None and args.thread.name == "run_worker":
            fail("a worker process died, perhaps because memory ran out")

    threading.excepthook = thread_failed
    try:
        with pipeline(settings) as steps:
            numbers = steps | apache_beam.Create(range(1, count + 1))
            _ = numbers | apache_beam.Reshuffle() | apache_beam.Map(_write, place)
    except Exception as error:  # a runner may raise anything
        traceback.print_exc()
        lines = str(error).strip().splitlines() or [repr(error)]
        fail(lines[-1].partition(" [while running")[0])


def _write(number: int, place: Path) -> None:
    """Calls the function on a chunk, in a worker, and stores the result."""
    path = place / f"shard-{number}"
    if not path.exists():  # else the bundle is repeated
        function, job = _job(place)
        _store(function(job, _load(place / f"chunk-{number}")), path)


@functools.lru_cache(1)
def _job(place: Path) -> Any:
    return _load(place / "job")


def _load(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


def _store(value: object, path: Path) -> None:
    """Writes a file that appears when it is complete."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    new.write_bytes(pickle.dumps(value))
    new.rename(path)
