"""GPT's fine-tuning (Radford et al. 2018, sections 3.2 and 3.3, and train.py).

A text is `_start_ a _classify_`, a pair `_start_ a _delimiter_ b _classify_`. A linear
layer reads the vector of `_classify_`. The language model's loss on the same rows is
added, half of it. The definitions of tasks do not change.

SQuAD and NER are ours: the paper has neither. A question precedes its context, so that
the context's tokens have seen it. A word is tagged at its last token, and "no answer"
is scored at `_classify_`, the only token that has seen all of them.
"""

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.errors import UserError
from bert_jax.families.gpt.pretraining import GptPretraining
from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.config import encoder_flops
from bert_jax.tasks import distillation
from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.tasks.definition import TaskDefinition
from bert_jax.tasks.finetuning import Finetuning
from bert_jax.tasks.ner.task import Ner
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.sequences import Sequences
from bert_jax.tasks.squad.task import Squad
from bert_jax.tasks.swag import Swag
from bert_jax.tasks.task import Shapes
from bert_jax.tasks.text import Text
from bert_jax.types import Arrays, DropoutKey, Scalars

# The language model's part of the loss, as it is added: times `task.lm_coef`.
LM_LOSS = "auxiliary_lm_loss"
_KINDS = (Text, Swag, Ner, Squad)


class GptFinetuning(Finetuning):
    """Adds the language model's loss to that of a task.

    Args:
      definition: The task's definition.
      config: Config whose `config.task` also has `lm_coef`, the factor of that loss,
        and for texts `both_orders`, see `BothOrders`.
    """

    def __init__(
        self,
        definition: type[TaskDefinition],
        config: ConfigDict,
        tokenizer: Tokenizer | None = None,
    ):
        super().__init__(definition, config, tokenizer)
        for name, only in (("bilstm", False), ("windows", 1)):
            if self.options[name] != only:
                raise UserError(
                    f"config.task.{name}={self.options[name]}: reads BERT's vectors, "
                    f"and config.model.architecture=gpt is a GPT; leave it {only}"
                )

    def make_text(
        self, definition: type[TaskDefinition], tokenizer: Tokenizer
    ) -> Sequences:
        both = issubclass(definition, Text) and self.options.both_orders
        kind = BothOrders if both else Sequences
        return kind(self.options, tokenizer, self.notices, causal=True)

    @functools.cached_property
    def _trained(self) -> BertWithHeads:
        """The model with its language model, which training alone needs.

        In the published code tokens and positions are rows of one table, and the
        language model scores all of them.
        """
        return self.model.clone(
            heads=(*self.heads, "masked_lm"),
            scored_positions=self.options.max_seq_length,
        )

    @property
    def _lm_coef(self) -> float:
        return self.options.lm_coef

    def loss(self, params: Any, batch: Arrays, key: DropoutKey) -> Scalars:
        """Returns the task's loss and, unless its factor is 0, the language model's."""
        if not self._lm_coef:
            return super().loss(params, batch, key)
        inputs = [batch[n] for n in ("input_ids", "input_mask", "segment_ids")]
        outputs = distillation.apply_model(
            self._trained, params, (*inputs, key), self.compared
        )
        by_sequence = lm_losses(outputs.pop("lm_logits"), batch)
        total = jnp.sum(_sequences(batch) * by_sequence.reshape(*_rows(batch)))
        losses = self.losses(params, outputs, batch)
        return {**losses, LM_LOSS: self._lm_coef * total}

    def loss_weights(self, batch: Arrays) -> Scalars:
        """Adds the number of sequences: each counts the same, whatever its length."""
        weights = super().loss_weights(batch)
        if self._lm_coef:
            weights[LM_LOSS] = jnp.sum(_sequences(batch))
        return weights

    def flops(self, shapes: Shapes) -> int:
        """Returns the FLOPs of the encoder and of the language model."""
        *rows, length = shapes["input_ids"]
        model = self.model_config
        pieces = model.vocab_size + self.options.max_seq_length
        scores = 3 * 2 * (length - 1) * model.hidden_size * pieces
        each = encoder_flops(model, length) + (scores if self._lm_coef else 0)
        return math.prod(rows) * each


class BothOrders(Sequences):
    """A pair as two sequences, in one order and in the other. The classifier reads the
    sum of their vectors (section 3.3, similarity)."""

    orders = 2

    def sequence(self, a: list[int], b: list[int] | None, split: str) -> dict[str, Any]:
        one = super().sequence(a, b, split)
        ids, segments = one["input_ids"], one["segment_ids"]
        middle = int(np.sum(segments == 0))  # where the second text begins
        other, owners = ids, segments  # a text alone is its own other order
        if middle < len(ids):
            first, second = ids[1 : middle - 1], ids[middle:-1]
            start, delimiter, end = ids[:1], ids[middle - 1 : middle], ids[-1:]
            other = np.concatenate([start, second, delimiter, first, end])
            owners = (np.arange(len(ids)) > len(second) + 1).astype(np.int32)
        return {
            "input_ids": np.stack([ids, other]),
            "segment_ids": np.stack([segments, owners]),
        }


def lm_losses(
    logits: Float[Array, "sequences length rows"], batch: Arrays
) -> Float[Array, "sequences"]:
    """Returns each sequence's mean cross entropy of the next token over its tokens.

    It is in nats (train.py, lm_losses), and 0 for a sequence without tokens.
    """
    length = batch["input_ids"].shape[-1]
    ids, mask = (
        batch[name].reshape(-1, length)[:, 1:] for name in ("input_ids", "input_mask")
    )
    losses = cross_entropy(logits[:, :-1], ids) * mask
    return losses.sum(axis=1) / jnp.maximum(mask.sum(axis=1), 1)


def _rows(batch: Arrays) -> tuple[int, ...]:
    return batch["input_ids"].shape[:-1]


def _sequences(batch: Arrays) -> Float[Array, "batch *sequences"]:
    """Returns 1 for each sequence, 0 for padding rows and choices that a row lacks."""
    real = jnp.any(batch["input_mask"] == 1, axis=-1).astype(jnp.float32)
    weights = batch["row_weights"]
    return real * weights.reshape(-1, *([1] * (real.ndim - 1)))


def choose_task(name: str, entry: Any) -> Any:
    """Returns a task as GPT does it: a function of (config, tokenizer).

    Args:
      name: Name of the task, for the error.
      entry: Entry of `tasks.TASKS`.

    Raises:
      UserError: It is not one of those that GPT was fine-tuned on.
    """
    if entry is Pretraining:
        return GptPretraining
    if not (isinstance(entry, type) and issubclass(entry, _KINDS)):
        raise UserError(
            f"config.task.name={name}: config.model.architecture=gpt classifies texts "
            "and pairs, chooses among endings, tags words and finds answers (glue.py, "
            "text.py, imdb.py, swag.py, ner.py, squad.py); take a BERT for this task"
        )
    return functools.partial(GptFinetuning, entry)
