"""ELMo for names and for answers: its vectors, BiLSTMs, and a CRF or two scores a word.

Names: as AllenNLP's crf_tagger with ELMo (training_config/ner_elmo.jsonnet, and Peters
et al. 2018, section 4). Answers: less than their system. docs/elmo.md lists the
differences.
"""

import dataclasses
import functools
from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.families.elmo.finetuning import ElmoFinetuning
from bert_jax.families.elmo.systems import ATTENTION, Linear, Marks, System, max_pool
from bert_jax.models import crf
from bert_jax.tasks.ner.task import Ner
from bert_jax.tasks.squad.task import Squad
from bert_jax.types import DropoutKey


class Tagger(nn.Module):
    """A linear layer's score of each tag, and a CRF's transitions (AllenNLP's
    crf_tagger)."""

    system: System
    labels: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch words size"], marks: Marks, key: DropoutKey
    ) -> dict[str, Array]:
        """Returns `logits` [batch, words, labels], and `between`, `first` and `last`,
        those of `crf.Transitions`.

        Args:
          marks, key: Not used.
        """
        del marks, key
        transitions = crf.Crf(self.labels, name="crf")()
        logits = Linear(self.labels, name="output")(x)
        return {"logits": logits, **transitions._asdict()}


class Spans(nn.Module):
    """A linear layer's scores of each word of the second text as an answer's first word
    and as its last one. "No answer" is scored at the row's first position, from the
    largest of each number over both texts' words."""

    system: System
    labels: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch words size"], marks: Marks, key: DropoutKey
    ) -> dict[str, Float[Array, "batch words"]]:
        """Returns `start_logits` and `end_logits`.

        They are the least number where no answer may be.

        Args:
          key: Not used, because `x` has had its dropout.
        """
        del key
        x = x.at[:, 0].set(max_pool(x, marks.words))
        legal = marks.texts()[1].at[:, 0].set(True)
        least = jnp.finfo(x.dtype).min
        scores = jnp.where(legal[..., None], Linear(2, name="output")(x), least)
        return {"start_logits": scores[..., 0], "end_logits": scores[..., 1]}


class ElmoNer(ElmoFinetuning, Ner):
    """A tagger of the words of a sentence by a CRF. Each sentence is read by itself.

    Args:
      config: Config of the run. `config.task` also has `tag_scheme`, of `crf.SCHEMES`.
        A guess keeps to it. Empty means that of the training data.
    """

    head_module = Tagger
    systems = (ATTENTION,)

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        super().__init__(config, tokenizer)
        if config.task.document_context:
            raise UserError(
                "config.task.document_context=True: an ELMo reads each sentence by "
                "itself; leave it False"
            )

    @property
    def crf(self) -> bool:
        """Always."""
        return True

    @functools.cached_property
    def system(self) -> System:
        """With dropout between the BiLSTM's layers, too."""
        system = super().system
        return dataclasses.replace(system, lstm_dropout=system.dropout)

    def _word_tokens(self, examples: Sequence[Row]) -> list[list[int]]:
        """Returns each word's number, whatever is in it.

        Words are lower-cased and without accents if the ELMo read such words.
        """
        words = [word for example in examples for word in example["words"]]
        if self.config.tokenizer.lowercase:
            words = [self.words.normal(word) for word in words]
        return [[number] for number in self.word_ids(words)]


class ElmoSquad(ElmoFinetuning, Squad):
    """An answer's two ends among the context's words, which have read the question."""

    head_module = Spans
    systems = (ATTENTION,)

    @property
    def pairs(self) -> bool:
        """The question and its context."""
        return True
