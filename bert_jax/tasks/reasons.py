"""Words that speak for an answer, by gradient x input."""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tokenizers import Encoding

from bert_jax.data.rows import Feature, Rows
from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.tasks.finetuning import Finetuning
from bert_jax.tasks.task import Outputs, Predictor
from bert_jax.tasks.text import Text
from bert_jax.types import Arrays

# Numbers of tokens, in place of ids, which no vocabulary has.
_FIRST, _SECOND = 1 << 29, 1 << 30


class Word(NamedTuple):
    """A word of a row's text: its characters [start, end) of a field."""

    field: str
    start: int
    end: int


class Reasons(Predictor):
    """Classes or numbers of texts, with the words that speak for each most.

    A word's score is the sum over its tokens of the output of the embeddings times the
    gradient with respect to it: of the logarithm of the odds of the class that is
    given, or of the number. Above 0 it speaks for the answer, below 0 against it.

    Attributes:
      count: Maximum number of words of a row.
    """

    def __init__(self, predictor: Predictor, count: int):
        """Takes the predictor of a task on texts.

        Raises:
          UserError: It is of another task, or the count is below 1.
        """
        named = f"config.predict.reasons={count}"
        if count < 1:
            raise UserError(f"{named}: must be at least 1, or 0 for none")
        if not isinstance(predictor, Finetuning) or not isinstance(
            predictor.definition, Text
        ):
            raise UserError(f"{named}: is for classes and numbers of texts; set it 0")
        pieces = predictor.definition.sequences * predictor.text.orders
        if predictor.kind == "multilabel" or pieces > 1:
            raise UserError(
                f"{named}: is for one class or number of a text in one piece, not for "
                "several labels, task.windows or task.both_orders; set it 0"
            )
        self._task, self.count = predictor, count
        self.max_seq_length, self.fitted = predictor.max_seq_length, predictor.fitted
        self.notices = predictor.notices

    @property
    def row_fields(self) -> tuple[str, ...]:
        return self._task.row_fields

    @property
    def labels(self) -> tuple[str, ...]:
        return self._task.labels

    def parse_row(self, row: Row) -> Row:
        return self._task.parse_row(row)

    def encode(self, examples: Sequence[Row], split: str) -> list[Feature]:
        """Encodes rows. `info` has the word of each token, or None."""
        text = copy.copy(self._task.text)
        text.notices = Counter()  # cut texts are counted by the task
        first = text.tokenize([row["text"] for row in examples])
        second = text.tokenize([row.get("text_b") or "" for row in examples])
        features = []
        pairs = zip(self._task.encode(examples, split), first, second, strict=True)
        for feature, a, b in pairs:
            numbers = [
                list(range(start, start + len(x.ids)))
                for start, x in ((_FIRST, a), (_SECOND, b))
            ]
            kept = text.sequence(numbers[0], numbers[1] or None, split)["input_ids"]
            words = {**_words("text", _FIRST, a), **_words("text_b", _SECOND, b)}
            features.append(feature._replace(info=[*map(words.get, kept.tolist())]))
        return features

    def make_rows(self, features: Sequence[Feature]) -> Rows:
        return Rows(features, self._task.padding)

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """Returns the task's outputs, and `reasons` [batch, length]."""

        def target(
            moved: Float[Array, "batch length embedding"],
        ) -> tuple[Array, tuple[dict[str, Array], Array]]:
            inputs = []

            def move(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
                found = call(*args, **kwargs)
                is_call = context.method_name == "__call__"
                if context.module.name != "embeddings" or not is_call:
                    return found
                inputs.append(found)
                return found + moved

            with nn.intercept_methods(move):
                outputs = self._task.outputs(params, batch)
            return jnp.sum(self._evidence(outputs["logits"])), (outputs, inputs[0])

        shape = (*batch["input_ids"].shape, self._task.model_config.embedding_size)
        dtype = self._task.model_config.dtype
        gradient = jax.grad(target, has_aux=True)
        grads, (outputs, inputs) = gradient(jnp.zeros(shape, dtype))
        reasons = jnp.sum(jnp.float32(grads) * jnp.float32(inputs), axis=-1)
        return {**outputs, "reasons": reasons}

    def _evidence(self, logits: Float[Array, "batch labels"]) -> Float[Array, "batch"]:
        """Returns the log odds of the most probable class, or the number."""
        if self._task.kind == "regression":
            return logits[:, 0]
        logits = logits / self.fitted.get("temperature", 1.0)
        best = jnp.argmax(logits, axis=-1, keepdims=True)
        is_best = jnp.arange(logits.shape[-1]) == best
        rest = jax.nn.logsumexp(jnp.where(is_best, -jnp.inf, logits), axis=-1)
        return jnp.max(logits, axis=-1) - rest

    def decode(
        self,
        examples: Sequence[Row],
        features: Sequence[Feature],
        outputs: Sequence[Outputs],
    ) -> list[dict[str, Any]]:
        """Returns the task's answers, with `reasons`, the strongest first.

        Each has `text`, `start` and `end` (characters of the row's text), `score` and,
        in a pair, `field`, which is `text` or `text_b`.
        """
        answers = self._task.decode(examples, features, outputs)
        for row, feature, output, answer in zip(
            examples, features, outputs, answers, strict=True
        ):
            totals: dict[Word, float] = {}
            for word, score in zip(feature.info, output["reasons"], strict=False):
                if word is not None and word.start < word.end:
                    totals[word] = totals.get(word, 0.0) + float(score)
            # A fitted threshold may give the other one of two classes.
            best = self._task.labels[int(np.argmax(output["logits"]))]
            sign = 1.0 if answer.get("label", best) == best else -1.0
            strongest = sorted(totals.items(), key=lambda x: -abs(x[1]))[: self.count]
            answer["reasons"] = [_format_word(row, *x, sign) for x in strongest]
        return answers


def _words(field: str, first: int, encoding: Encoding) -> dict[int, Word]:
    """Returns the word of each token, by its number from `first` on."""
    spans: dict[int | None, tuple[int, int]] = {}
    for word, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True):
        known = spans.get(word, (start, end))
        spans[word] = (min(known[0], start), max(known[1], end))
    return {
        first + number: Word(field, *spans[word])
        for number, word in enumerate(encoding.word_ids)
    }


def _format_word(row: Mapping[str, Any], word: Word, score: float, sign: float) -> Row:
    text = row[word.field][word.start : word.end]
    found: Row = {"text": text, "start": word.start, "end": word.end}
    if row.get("text_b"):
        found["field"] = word.field
    return {**found, "score": sign * score}
