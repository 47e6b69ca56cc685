"""`--mode=predict`: rows in, rows with answers out."""

import contextlib
import logging
from collections.abc import Callable

from tokenizers import Tokenizer

from bert_jax.data.vocabulary_fit import Watch
from bert_jax.runtime import processes
from bert_jax.runtime.storage import Path
from bert_jax.tasks import row_files, streaming
from bert_jax.tasks.task import Batch, Outputs, Task
from bert_jax.training import setup
from bert_jax.training.inference import async_predict, batch_size

log = logging.getLogger(__name__)

Submit = Callable[[Batch], Callable[[], Outputs]]


def predict(task: Task, folder: Path, source: str, target: str) -> None:
    """Reads rows and writes them with their answers, in the same order.

    With `config.predict.attentions` also writes who attends to whom, to a file of that
    name.

    Args:
      folder: the work directory with the checkpoint.
      source: JSON lines, or another file of tasks/row_files.py; `-`: standard input.
      target: likewise, written completely or not at all; `-`: standard output.
    """
    with (
        streaming.lines(source, task.row_columns) as lines,
        setup.restored_params(task, folder, task.unused(predicts=True)) as restored,
        streaming.output(target) as output,
        contextlib.ExitStack() as stack,
    ):
        predictor = task.predictor(restored.missing)
        rows = task.config.predict.batch_size
        keeping: Callable[[Submit], Submit] | None = None
        if task.config.predict.attentions:
            from bert_jax.attentions import keep

            around = keep.around(predictor, task, restored.params, rows)
            predictor, rows, keeping = stack.enter_context(around)
        size = batch_size(restored.mesh, rows, task.model_config.hidden_size)
        submit = async_predict(predictor.step, restored.params, restored.mesh, size)
        submit = _watching(submit, task.tokenizer, source)
        submit = keeping(submit) if keeping else submit
        write = row_files.writer(target, output)
        count = 0
        for some in streaming.answered(lines, predictor, submit, size):
            for row, answer in some:
                write(row_files.answered(row, row_files.rounded(answer)))
                if not count and source != "-" and (place := task.place_of_text(row)):
                    log.info("%s: reading %s", source, place)
                count += 1
            output.flush()
        if source != "-":
            said = "1 row" if count == 1 else f"{count:,} rows"
            log.info("%s: %s answered", source, said)


def _watching(submit: Submit, tokenizer: Tokenizer, source: str) -> Submit:
    """Also warns once, from the first rows, if the vocabulary does not fit them."""
    watch = Watch(tokenizer)

    def watched(batch: Batch) -> Callable[[], Outputs]:
        if fault := watch.fault(batch["input_ids"], source):
            log.warning("warning: %s", fault)
        return submit(batch)

    return watched if processes.is_first() else submit
