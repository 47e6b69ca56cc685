"""`--mode=predict`: rows in, rows with answers out."""

import contextlib
import logging
from collections.abc import Callable, Iterator

from tokenizers import Tokenizer

from bert_jax.data.vocabulary_fit import Watch
from bert_jax.errors import UserError
from bert_jax.runtime import processes
from bert_jax.runtime.storage import Path
from bert_jax.tasks import attention_files, row_files, streaming
from bert_jax.tasks.attentions import Keep, WithAttentions, keeping, rows_at_once
from bert_jax.tasks.task import Batch, Outputs, Task
from bert_jax.training import initial, sharding
from bert_jax.training.inference import submitting

log = logging.getLogger(__name__)

Submit = Callable[[Batch], Callable[[], Outputs]]


def predict(task: Task, folder: Path, source: str, target: str) -> None:
    """Reads rows and writes them with their answers, in the same order.

    With `config.predict.attentions` also writes who attends to whom, to files of that
    name.

    Args:
      folder: the work directory with the checkpoint.
      source: JSON lines, or another file of tasks/row_files.py; `-`: standard input.
      target: likewise, written completely or not at all; `-`: standard output.
    """
    with (
        streaming.lines(source, task.row_columns) as lines,
        initial.restored(task, folder, task.unused(predicts=True)) as found,
        streaming.output(target) as output,
        contextlib.ExitStack() as stack,
    ):
        predictor = task.predictor(found.missing)
        rows = task.config.predict.batch_size
        if name := task.config.predict.attentions:
            _require_attention(task, name)
            kept = stack.enter_context(_attentions(name, task, source, target))
            config = task.model_config
            predictor = WithAttentions(predictor, config, found.params)
            longest = getattr(task, "row_shape", (config.max_position_embeddings,))
            rows = rows_at_once(config, longest, rows)
        size = sharding.batch_multiple(found.mesh, rows)
        submit = submitting(predictor.step, found.params, found.mesh, size)
        submit = _watching(submit, task.tokenizer, source)
        if name:
            submit = keeping(submit, kept)
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


def _require_attention(task: Task, name: str) -> None:
    if task.config.model.architecture == "elmo":
        raise UserError(
            f"config.predict.attentions={name}: shows a Transformer's attention, and "
            "this model is an ELMo; leave it empty"
        )


@contextlib.contextmanager
def _attentions(name: str, task: Task, source: str, target: str) -> Iterator[Keep]:
    """Yields what takes each row's probabilities; writes the files at the end."""
    if not processes.is_first():
        yield lambda *_: None
        return
    with attention_files.keeping(name, task.tokenizer, (source, target)) as kept:
        yield kept.add


def _watching(submit: Submit, tokenizer: Tokenizer, source: str) -> Submit:
    """Also warns once, from the first rows, if the vocabulary does not fit them."""
    watch = Watch(tokenizer)

    def watched(batch: Batch) -> Callable[[], Outputs]:
        if fault := watch.fault(batch["input_ids"], source):
            log.warning("warning: %s", fault)
        return submit(batch)

    return watched if processes.is_first() else submit
