"""`--mode=extract`: JSON lines in, vectors of a model's layers out."""

import os

from bert_jax import family
from bert_jax.errors import UserError
from bert_jax.extract import files
from bert_jax.runtime.storage import Path
from bert_jax.tasks import row_files
from bert_jax.tasks.task import Task
from bert_jax.training import setup
from bert_jax.training.inference import Answerer

# Bytes of vectors that are computed together, if more than one batch.
WINDOW_BYTES = 256_000_000


def extract(task: Task, folder: Path, source: str, target: str) -> None:
    """Reads JSON lines and writes each row's vectors, in the same order.

    Args:
      task: any; only its encoder and tokenizer are used.
      folder: the work directory with the checkpoint.
      source: a file, or `-` for standard input.
      target: a .jsonl or .safetensors file, written completely or not at all, or `-`
        for JSON lines on standard output.

    Raises:
      UserError: a wrong row, a layer that does not exist, another kind of file, or one
        that cannot be written.
    """
    if name := task.config.predict.attentions:
        raise UserError(
            f"config.predict.attentions={name}: is for --mode=predict; extract writes "
            "vectors"
        )
    chosen = family.of(task.config)
    if chosen.extractor is None:
        raise UserError(f"--mode=extract: {chosen.title} has no layers to extract")
    extractor = chosen.extractor(task.config, task.model_config, task.tokenizer)
    if os.path.isfile(target) and os.path.realpath(source) == os.path.realpath(target):
        raise UserError(f"--output={target}: is --input, whose texts would be lost")
    lines = row_files.lines(source)
    with (
        # First: a place that cannot be written is named before weights are read.
        files.writing(target, extractor) as output,
        setup.restored_params(task, folder, ("bert/pooler",), encoder=True) as restored,
    ):
        params = {chosen.trunk_name: restored.params[chosen.trunk_name]}
        rows, config = task.config.predict.batch_size, task.model_config
        answerer = Answerer(extractor, params, restored.mesh, rows, config)
        most = row_files.CHARACTERS
        if not extractor.of_whole_rows:  # a character is rarely more than a piece
            most = min(most, WINDOW_BYTES // extractor.bytes_per_vector)
        for some in answerer.stream(lines, most):
            output.write(answer for _, answer in some)
        extractor.warn()
