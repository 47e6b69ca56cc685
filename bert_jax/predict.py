"""`--mode=predict`: rows in, rows with answers out."""

import contextlib
import logging

from bert_jax import attentions
from bert_jax.data import vocabulary_fit
from bert_jax.runtime import processes
from bert_jax.runtime.storage import Path
from bert_jax.runtime.terminal import live_line
from bert_jax.tasks import row_files
from bert_jax.tasks.task import Task
from bert_jax.training import inference

log = logging.getLogger(__name__)


def predict(task: Task, folder: Path, source: str, target: str) -> None:
    """Reads rows and writes them with their answers, in the same order.

    With `config.predict.attentions` also writes the attention probabilities to a file
    of that name.

    Args:
      folder: The work directory with the checkpoint.
      source: JSON lines, or another file of tasks/row_files.py. `-` means standard
        input.
      target: A file of the same kinds, which appears once it is complete. `-` means
        standard output.
    """
    count, lines = 0, row_files.lines(source, task.row_columns)
    with contextlib.ExitStack() as stack:
        # First: a path that cannot be written is reported before weights are read.
        output = stack.enter_context(row_files.output(target))
        write = row_files.writer(target, output)
        answerer = inference.of_task(task, folder)
        if task.config.predict.attentions:
            answerer = stack.enter_context(attentions.around(answerer, task))
        if processes.is_first():
            answerer.watch = vocabulary_fit.warner(task.tokenizer, source)
        shows = target != "-" and processes.is_first()
        progress = stack.enter_context(live_line(shows, unit=" rows"))
        for some in answerer.stream(lines):
            for row, answer in some:
                write(row_files.answered(row, row_files.rounded(answer)))
            output.flush()
            count += len(some)
            progress.update(len(some))
    if source != "-":
        said = "1 row" if count == 1 else f"{count:,} rows"
        log.info("%s: %s answered", source, said)
