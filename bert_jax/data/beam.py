"""A map of a function over chunks on Apache Beam, with the same results as `workers`.

Chunks and results are files in a folder that all workers share. So the pipeline carries
numbers only, and memory does not grow with the text.
"""

import functools
import pickle
import secrets
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import apache_beam
from apache_beam.options.pipeline_options import PipelineOptions
from ml_collections import ConfigDict

from bert_jax.data.chunks import Chunk
from bert_jax.data.writing import Job, Shard
from bert_jax.errors import UserError


def make_pipeline(settings: ConfigDict) -> apache_beam.Pipeline:
    """Returns an empty pipeline of `corpus.runner` with `corpus.beam_options`.

    Args:
      settings: `config.corpus`.

    Raises:
      UserError: Beam does not have the runner, or an option is wrong.
    """
    # Beam's default runs several workers one after the other.
    options = ["--direct_running_mode=multi_processing", *settings.beam_options]
    try:
        return apache_beam.Pipeline(settings.runner, PipelineOptions(options))
    except (ValueError, ImportError, AttributeError, TypeError) as error:
        raise UserError(
            f"config.corpus.runner={settings.runner}: Beam cannot load it with "
            f"config.corpus.beam_options={tuple(settings.beam_options)} ({error}); "
            "FnApiRunner needs nothing else"
        ) from error


def ordered_map(
    settings: ConfigDict,
    function: Callable[[Job, Chunk], Shard],
    job: Job,
    chunks: Iterable[Chunk],
) -> Generator[Shard, None, None]:
    """Yields function(job, chunk) for each chunk, in their order, when all are there.

    Args:
      settings: `config.corpus`.
      function: A function in an importable module. It must be safe to call twice.
      job: Settings of the chunks. Every worker sees its folder under the same path.

    Raises:
      UserError: the pipeline failed.
    """
    folder = job.aside() / f"beam-{function.__name__}"
    folder.mkdir()
    _store((function, job), folder / "job")
    count = 0
    for count, chunk in enumerate(chunks, 1):
        _store(chunk, folder / f"chunk-{count}")
    try:
        with make_pipeline(settings) as steps:
            numbers = steps | apache_beam.Create(range(1, count + 1))
            _ = numbers | apache_beam.Reshuffle() | apache_beam.Map(_write, folder)
    except Exception as error:  # a runner may raise anything
        last = (str(error).strip() or repr(error)).splitlines()[-1]
        why = last.partition(" [while running")[0]
        raise UserError(
            f"config.corpus.runner={settings.runner}: {why}; all workers must see "
            "config.corpus.data_dir under the same path"
        ) from error
    for number in range(1, count + 1):
        yield _load(folder / f"shard-{number}")


def _write(number: int, folder: Path) -> None:
    """Calls the function on a chunk, in a worker, and stores the result."""
    path = folder / f"shard-{number}"
    if not path.exists():  # else the bundle is repeated
        function, job = _load_job(folder)
        _store(function(job, _load(folder / f"chunk-{number}")), path)


@functools.lru_cache(1)
def _load_job(folder: Path) -> Any:
    return _load(folder / "job")


def _load(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


def _store(value: object, path: Path) -> None:
    """Writes a file that appears when it is complete."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    new.write_bytes(pickle.dumps(value))
    new.rename(path)
