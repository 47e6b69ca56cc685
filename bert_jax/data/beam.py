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
from bert_jax.data.writing import Job, Part
from bert_jax.errors import UserError


def ordered_map(
    settings: ConfigDict,
    function: Callable[[Job, Chunk], Part],
    job: Job,
    chunks: Iterable[Chunk],
) -> Generator[Part, None, None]:
    """Yields function(job, chunk) for each chunk, in their order, when all are there.

    Args:
      settings: `config.corpus`.
      function: A function in an importable module. It must be safe to call twice.
      job: Settings of the chunks. Every worker sees its folder under the same path.

    Raises:
      UserError: Beam does not have the runner, an option is wrong, or the pipeline
        failed.
    """
    folder = job.aside / f"beam-{secrets.token_hex(4)}"
    folder.mkdir()
    count = 0
    # Beam's default runs several workers one after the other.
    options = ["--direct_running_mode=multi_processing", *settings.beam_options]
    try:
        # It looks the runner up, before the text is read.
        with apache_beam.Pipeline(settings.runner, PipelineOptions(options)) as steps:
            for count, chunk in enumerate(chunks, 1):
                _store(chunk, folder / f"chunk-{count}")
            numbers = steps | apache_beam.Create(range(1, count + 1))
            mapped = apache_beam.Map(_write, function, job, folder)
            _ = numbers | apache_beam.Reshuffle() | mapped
    except UserError:
        raise
    except Exception as error:  # a runner may raise anything
        last = (str(error).strip() or repr(error)).splitlines()[-1]
        why = last.partition(" [while running")[0]
        raise UserError(
            f"config.corpus.runner={settings.runner}: {why}; check the runner's name "
            "and config.corpus.beam_options, and that all workers see "
            "config.corpus.data_dir under the same path"
        ) from error
    for number in range(1, count + 1):
        yield pickle.loads((folder / f"part-{number}").read_bytes())


def _write(
    number: int, function: Callable[[Job, Chunk], Part], job: Job, folder: Path
) -> None:
    """Calls the function on a chunk, in a worker, and stores the result."""
    path = folder / f"part-{number}"
    if not path.exists():  # else the bundle is repeated
        chunk = pickle.loads((folder / f"chunk-{number}").read_bytes())
        _store(function(job, chunk), path)


def _store(value: object, path: Path) -> None:
    """Writes a file that appears when it is complete."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    new.write_bytes(pickle.dumps(value))
    new.rename(path)
