"""A map of a function over chunks on Apache Beam, with the same results as `workers`.

Chunks and results are files in a folder that all workers share. So the pipeline carries
numbers only, and memory does not grow with the text.
"""

import pickle
import secrets
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import apache_beam
from apache_beam.options.pipeline_options import PipelineOptions
from ml_collections import ConfigDict

from bert_jax.data.chunks import Chunk
from bert_jax.data.writing import Job, Shard


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
      Exception: Any that Beam or its runner raises, for a wrong option too.
    """
    folder = job.aside() / f"beam-{function.__name__}"
    folder.mkdir()
    count = 0
    # Beam's default runs several workers one after the other.
    options = ["--direct_running_mode=multi_processing", *settings.beam_options]
    # It looks the runner up, before the text is read.
    with apache_beam.Pipeline(settings.runner, PipelineOptions(options)) as steps:
        for count, chunk in enumerate(chunks, 1):
            _store(chunk, folder / f"chunk-{count}")
        numbers = steps | apache_beam.Create(range(1, count + 1))
        mapped = apache_beam.Map(_write, function, job, folder)
        _ = numbers | apache_beam.Reshuffle() | mapped
    for number in range(1, count + 1):
        yield pickle.loads((folder / f"shard-{number}").read_bytes())


def _write(
    number: int, function: Callable[[Job, Chunk], Shard], job: Job, folder: Path
) -> None:
    """Calls the function on a chunk, in a worker, and stores the result."""
    path = folder / f"shard-{number}"
    if not path.exists():  # else the bundle is repeated
        chunk = pickle.loads((folder / f"chunk-{number}").read_bytes())
        _store(function(job, chunk), path)


def _store(value: object, path: Path) -> None:
    """Writes a file that appears when it is complete."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    new.write_bytes(pickle.dumps(value))
    new.rename(path)
