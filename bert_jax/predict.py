"""`--mode=predict`: rows in, rows with answers out."""

import functools
import hashlib
import logging
import zlib
from typing import Any

import jax
import numpy as np

from bert_jax.runtime import processes, terminal
from bert_jax.runtime.storage import Path
from bert_jax.tasks import partial_output, row_files
from bert_jax.tasks.task import Task
from bert_jax.training import inference
from bert_jax.workdir import folder as workdir

log = logging.getLogger(__name__)


def predict(task: Task, folder: Path, source: str, target: str) -> None:
    """Reads rows and writes them with their answers, in the same order.

    Args:
      folder: The work directory with the checkpoint.
      source: JSON lines, or another file of tasks/row_files.py. `-` means standard
        input.
      target: A file of the same kinds. It appears once it is complete, and the same
        call resumes it (tasks/partial_output.py). `-` means standard output.
    """
    rows = row_files.input_rows(source, task.row_columns)
    empty = dict.fromkeys(row_files.late_fields(source, target, task.row_columns))
    answerer = inference.restore_answerer(task, folder)
    work = functools.partial(_work, task, answerer, source)
    with partial_output.open_output(source, target, work) as output:
        write = row_files.row_writer(target, output.file, [*output.columns])
        shows = output.part is not None and processes.is_first()
        answered = output.rows
        with terminal.live_line(shows, initial=output.rows, unit=" rows") as progress:
            if shows and terminal.is_live():
                again = row_files.input_rows(source, task.row_columns)
                terminal.count_for(progress, again)
            for some in answerer.stream(rows, skip=answered):
                for row, answer in some:
                    filled = empty | row_files.flat_row(row) if empty else row
                    rounded = row_files.round_numbers(answer)
                    write(row_files.answered_row(filled, rounded))
                output.file.flush()
                answered += len(some)
                progress.update(len(some))
        if source != "-":
            said = "1 row" if answered == 1 else f"{answered:,} rows"
            log.info("%s: %s answered", source, said)
        for what, count in answerer.notices.items():
            log.info("%s: %s", what, f"{count:,}")


def _work(task: Task, answerer: inference.Answerer, source: str) -> dict[str, Any]:
    """Returns the values that decide the answers, by their names in messages. Further
    rows of the input may change: only its path and its first row are its own."""
    first = next(row_files.input_rows(source, task.row_columns), None)
    checksum = 0
    for leaf in jax.tree.leaves(answerer.params):  # if sharded, this process's part
        data = np.asarray(leaf.addressable_shards[0].data)
        checksum = zlib.crc32(data.tobytes(), checksum)
    shaping = ("model.", "task.", "tokenizer.", "predict.")
    fields = {
        f"config.{name}": value
        for name, value in workdir.agreed_fields(task.config).items()
        if name.startswith(shaping) and name != "predict.batch_size"
    }
    vocabulary = hashlib.sha256(task.tokenizer.to_str().encode()).hexdigest()
    return {
        **fields,
        "the input": hashlib.sha256(repr(first).encode()).hexdigest(),
        "the weights": f"checksum {checksum:08x}",
        "the vocabulary": f"checksum {vocabulary[:8]}",
        "the task's facts": {**answerer.predictor.fitted},
    }
