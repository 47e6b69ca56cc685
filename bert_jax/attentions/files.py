"""The files of `predict.attentions`: NAME.safetensors with every row, NAME.html to look
at the first ones.

A row's probabilities are the tensor `attentions_ROW` in float16, [layers, heads, from,
to], without padding. Rows count from 0. A row that the task cuts into several windows,
or that has several choices, goes on in `attentions_ROW_1`, `attentions_ROW_2`, ... The
metadata of the file has, under the tensor's name, JSON with its `tokens` and their
`segments`.
"""

import base64
import contextlib
import functools
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Float16, Int
from tokenizers import Tokenizer

from bert_jax.attentions import keep as attentions
from bert_jax.attentions.keep import FIELD
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.runtime import processes, storage, temporary
from bert_jax.tasks.task import Batch, Outputs, Predictor, Task

log = logging.getLogger(__name__)

Submit = Callable[[Batch], Callable[[], Outputs]]

# Bytes of probabilities in the page: browsers open a page of this size within seconds.
# The first sequence is shown whatever its size.
PAGE_BYTES = 32_000_000
HEADER_BYTES = 100_000_000  # that the safetensors library reads
TEMPLATE = Path(__file__).with_name("page.html")
_HERE = "<!-- sequences -->"  # in the template


class Attentions:
    """What is kept of a prediction: the probabilities on disk, in order of arrival."""

    def __init__(self, file: BinaryIO, tokenizer: Tokenizer):
        self._file, self._tokenizer = file, tokenizer
        self._entries: dict[tuple[int, int], dict[str, Any]] = {}
        self._header_bytes = 0

    def add(
        self,
        row: int,
        part: int,
        ids: Int[np.ndarray, "length"],
        segments: Int[np.ndarray, "length"],
        probabilities: Float16[np.ndarray, "layers heads length length"],
    ) -> None:
        """Keeps a sequence.

        Raises:
          UserError: the file's header would be longer than its readers allow.
        """
        start = self._file.tell()
        with temporary.naming(FIELD):
            self._file.write(np.ascontiguousarray(probabilities, "<f2").tobytes())
        entry = {
            "tokens": [self._tokenizer.id_to_token(int(i)) or f"#{i}" for i in ids],
            "segments": [int(segment) for segment in segments],
            "shape": list(probabilities.shape),
            "offsets": [start, self._file.tell()],
        }
        self._entries[row, part] = entry
        self._header_bytes += 2 * len(json.dumps(entry["tokens"])) + 3 * len(ids) + 200
        if self._header_bytes > HEADER_BYTES:
            raise UserError(
                f"{FIELD}: {len(self._entries):,} rows are too many for one "
                "safetensors file; split the input"
            )

    def write(self, place: Path, page: Path) -> None:
        """Writes both files, completely or not at all.

        Raises:
          UserError: nothing was kept.
        """
        if not self._entries:
            raise UserError(f"{FIELD}: the input has no rows, so nothing is written")
        with temporary.naming(FIELD):
            self._file.flush()
        self._entries = dict(sorted(self._entries.items()))
        with storage.replacing(place) as file, storage.replacing(page) as text:
            header = self._header()
            file.buffer.write(len(header).to_bytes(8, "little") + header)
            self._file.seek(0)
            shutil.copyfileobj(self._file, file.buffer, 1 << 20)
            before, after = TEMPLATE.read_text(encoding="utf-8").split(_HERE)
            text.write(before)
            text.writelines(self._scripts())
            text.write(after)
            # A full disk ends the one before the other has its name.
            file.flush()
            text.flush()

    def _header(self) -> bytes:
        """The header, in the form of huggingface/safetensors, padded to 8 bytes."""
        about = {
            _name(*key): json.dumps(
                {"tokens": entry["tokens"], "segments": entry["segments"]},
                ensure_ascii=False,
            )
            for key, entry in self._entries.items()
        }
        header: dict[str, Any] = {"__metadata__": about}
        for key, entry in self._entries.items():
            header[_name(*key)] = {
                "dtype": "F16",
                "shape": entry["shape"],
                "data_offsets": entry["offsets"],
            }
        text = json.dumps(header, ensure_ascii=False).encode("utf-8")
        return text + b" " * (-len(text) % 8)

    def _scripts(self) -> Iterator[str]:
        """The first sequences as elements of the page: data only, never code."""
        shown = total = 0
        for (row, part), entry in self._entries.items():
            start, end = entry["offsets"]
            total += end - start
            if shown and total > PAGE_BYTES:
                break
            shown += 1
            self._file.seek(start)
            content = {
                "row": row,
                "part": part,
                "tokens": entry["tokens"],
                "segments": entry["segments"],
                "shape": entry["shape"],
                "float16": base64.b64encode(self._file.read(end - start)).decode(),
            }
            # No text can end the element: every < is an escape.
            text = json.dumps(content).replace("<", "\\u003c")
            yield f'<script type="application/json" class="sequence">{text}</script>\n'
        left = len(self._entries) - shown
        yield f'<script type="application/json" id="left-out">{left}</script>\n'
        if left:
            log.warning(
                "%s: the page shows the first %d of %d sequences (%d left out; "
                "it holds the first, and more up to %d MB); the safetensors file has "
                "all of them",
                *(FIELD, shown, shown + left, left, PAGE_BYTES // 1_000_000),
            )


@contextlib.contextmanager
def around(
    predictor: Predictor, task: Task, params: Any, rows: int, others: Sequence[str]
) -> Iterator[tuple[Predictor, int, Callable[[Submit], Submit]]]:
    """Makes a predictor's probabilities be kept; at the end the first process writes
    the files of `predict.attentions`.

    Args:
      rows: that the predictor takes at once.
      others: files that the prediction reads or writes.

    Yields:
      The predictor; its rows at once; and what a function that submits batches becomes.

    Raises:
      UserError: the model has no attention; see `keeping`.
    """
    name, config = task.config.predict.attentions, task.model_config
    family = FAMILIES[task.config.model.architecture]
    if not family.attends:
        raise UserError(
            f"{FIELD}={name}: shows a Transformer's attention, and this model is "
            f"{family.title}; leave it empty"
        )
    longest = getattr(task, "row_shape", (config.max_position_embeddings,))
    with contextlib.ExitStack() as stack:
        keep: attentions.Keep = _nothing
        if processes.is_first():
            keep = stack.enter_context(keeping(name, task.tokenizer, others)).add
        yield (
            attentions.WithAttentions(predictor, config, params),
            attentions.rows_at_once(config, longest, rows),
            lambda submit: attentions.keeping(submit, keep),
        )


@contextlib.contextmanager
def keeping(
    name: str, tokenizer: Tokenizer, others: Sequence[str] = ()
) -> Iterator[Attentions]:
    """Yields what to add to; at the end writes NAME.safetensors and NAME.html.

    Args:
      others: files that the prediction reads or writes.

    Raises:
      UserError: they cannot be written there.
    """
    if storage.in_bucket(name):
        raise UserError(f"{FIELD}={name}: name a local file, and copy the two")
    if name.endswith((".html", ".safetensors")):
        raise UserError(
            f"{FIELD}={name}: leave the ending out; {Path(name).stem}.safetensors and "
            f"{Path(name).stem}.html are written"
        )
    if os.path.basename(name) in ("", ".", ".."):
        raise UserError(f"{FIELD}={name}: names a folder; add the files' name")
    output = functools.partial(storage.output, flag=f"--{FIELD}")
    place, page = (Path(output(name + end)) for end in (".safetensors", ".html"))
    # Not only lost: a second temporary file of the same name deletes the first.
    for taken in others:
        if os.path.realpath(taken) in map(os.path.realpath, (place, page)):
            raise UserError(f"{FIELD}={name}: {taken} is --input or --output as well")
    with (
        temporary.folder(place) as folder,
        _scratch(folder / "probabilities") as file,
    ):
        kept = Attentions(file, tokenizer)
        yield kept
        kept.write(place, page)


@contextlib.contextmanager
def _scratch(path: Path) -> Iterator[BinaryIO]:
    """Yields a new file to write and read."""
    file = path.open("w+b")
    try:
        yield file
    finally:
        # It fails where a full disk has not taken all, which has been said by then.
        with contextlib.suppress(OSError):
            file.close()


def _nothing(*_: Any) -> None:
    """Keeps nothing: the first process writes for all."""


def _name(row: int, part: int) -> str:
    return f"attentions_{row}_{part}" if part else f"attentions_{row}"
