"""`--mode=predict`: rows in, rows with answers out."""

import contextlib
import hashlib
import logging
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from tokenizers import Tokenizer
from tqdm import tqdm

from bert_jax.data.vocabulary_fit import Watch
from bert_jax.runtime import processes, storage
from bert_jax.runtime.storage import Path
from bert_jax.runtime.terminal import live_line
from bert_jax.tasks import partial_output, row_files, streaming
from bert_jax.tasks.partial_output import Output
from bert_jax.tasks.task import Batch, Outputs, Task
from bert_jax.training import setup
from bert_jax.training.inference import async_predict, batch_size
from bert_jax.workdir import folder as workdir

log = logging.getLogger(__name__)

Submit = Callable[[Batch], Callable[[], Outputs]]


def predict(task: Task, folder: Path, source: str, target: str) -> None:
    """Reads rows and writes them with their answers, in the same order.

    With `config.predict.attentions` also writes who attends to whom, to a file of that
    name.

    Args:
      folder: the work directory with the checkpoint.
      source: JSON lines, or another file of tasks/row_files.py; `-`: standard input.
      target: likewise, there once it is complete, and resumed by the same call
        (tasks/partial_output.py); `-`: standard output.
    """
    with (
        streaming.lines(source, task.row_columns) as lines,
        setup.restored_params(task, folder, task.unused(predicts=True)) as restored,
        partial_output.opened(
            source,
            target,
            # The files of attentions have every row, or are not there.
            None
            if task.config.predict.attentions
            else lambda: _work(task, restored.params),
        ) as output,
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
        write = row_files.writer(target, output.file, output.columns)
        progress = stack.enter_context(_progress(task, source, output))
        count, rest = output.rows, output.rest(lines)
        for some in streaming.answered(
            rest, predictor, submit, size, whole=output.resumes
        ):
            for row, answer in some:
                write(row_files.answered(row, row_files.rounded(answer)))
                if not count and source != "-" and (place := task.place_of_text(row)):
                    log.info("%s: reading %s", source, place)
                count += 1
            progress.update(count - output.rows)
            output.commit(count - output.rows)
        if source != "-":
            said = "1 row" if count == 1 else f"{count:,} rows"
            log.info("%s: %s answered", source, said)


def _work(task: Task, params: Any) -> dict[str, Any]:
    """Returns what decides the answers, by its name for people."""
    checksum = 0
    for leaf in jax.tree.leaves(params):  # of sharded ones, this process's part
        data = np.asarray(leaf.addressable_shards[0].data)
        checksum = zlib.crc32(data.tobytes(), checksum)
    shaping = ("model.", "task.", "tokenizer.", "predict.")
    fields = {
        f"config.{name}": value
        for name, value in workdir.fields(task.config).items()
        if name.startswith(shaping) and name != "predict.batch_size"
    }
    vocabulary = hashlib.sha256(task.tokenizer.to_str().encode()).hexdigest()
    return {
        **fields,
        "the weights": f"checksum {checksum:08x}",
        "the vocabulary": f"checksum {vocabulary[:8]}",
        "the task's facts": task.facts,
    }


@contextlib.contextmanager
def _progress(task: Task, source: str, output: Output) -> Iterator[tqdm]:
    """Yields the progress of what is written from file to file."""
    total, active = None, output.resumes and processes.is_first()
    if active and not storage.in_bucket(source):
        with streaming.lines(source, task.row_columns) as lines:
            total = sum(1 for _ in lines)
    with live_line(active, total=total, initial=output.rows, unit=" rows") as line:
        yield line


def _watching(submit: Submit, tokenizer: Tokenizer, source: str) -> Submit:
    """Also warns once, from the first rows, if the vocabulary does not fit them."""
    watch = Watch(tokenizer)

    def watched(batch: Batch) -> Callable[[], Outputs]:
        if fault := watch.fault(batch, source):
            log.warning("warning: %s", fault)
        return submit(batch)

    return watched if processes.is_first() else submit
