"""The columns of a task's batches, from its config alone: no data is read."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from bert_jax.tasks.task import Phase, Task

Columns = dict[str, jax.ShapeDtypeStruct]

# What a batch of a head has besides its inputs: scalars of a row, or of each token.
_SCALARS = {
    "sequence_classification": ("label",),
    "multiple_choice": ("label",),
    "question_answering": ("start_positions", "end_positions"),
    "token_classification": (),
}
_PRETRAINING = "next_sentence_labels"


def columns(task: Task, phase: Phase, rows: int = 0) -> Columns:
    """Shapes and dtypes of a training batch.

    Args:
      rows: of the batch; 0: as many as the phase has.
    """
    shapes = dict(phase.shapes)
    if _PRETRAINING not in shapes:
        shapes = _finetuning(task, shapes["input_ids"]) | shapes
    if getattr(task, "kind", "") == "multilabel":
        shapes["label"] = (*shapes["label"], len(getattr(task, "labels", ())))
    floats = {name for name in shapes if name.endswith("weights")}
    if getattr(task, "kind", "") in ("multilabel", "regression"):
        floats.add("label")
    return {
        name: jax.ShapeDtypeStruct(
            (rows or whole[0], *whole[1:]), jnp.float32 if name in floats else jnp.int32
        )
        for name, whole in shapes.items()
    }


def inputs(given: Columns) -> Columns:
    """The columns of a batch without its targets, as prediction has them."""
    names = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
    found = {name: given[name] for name in names if name in given}
    if _PRETRAINING in given and "masked_lm_positions" not in found:
        rows = given["input_ids"].shape[0]
        found["masked_lm_positions"] = jax.ShapeDtypeStruct((rows, 1), jnp.int32)
    return found


def _finetuning(task: Any, tokens: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    rows = tokens[:1]
    found = dict.fromkeys(("input_mask", "segment_ids"), tokens)
    for name in _SCALARS[task.head]:
        found[name] = rows
    if task.head == "token_classification":
        found["labels"] = tokens
    return {**found, "row_weights": rows}


@functools.cache
def stand_in(pieces: int) -> Tokenizer:
    """A tokenizer of so many pieces, where only their number matters."""
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    names = [*special, *(f"piece{index}" for index in range(pieces - len(special)))]
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(special))
    return tokenizer
