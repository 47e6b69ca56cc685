"""Classes that a model was not trained on, by a run of natural language inference."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Array

from bert_jax.data.rows import Feature, Rows
from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.scores.classification import softmax
from bert_jax.tasks.finetuning import Finetuning
from bert_jax.tasks.task import Outputs, Predictor, require_text
from bert_jax.tasks.text import Text
from bert_jax.types import Arrays

_ENTAILMENT = "entailment"


class ZeroShot(Predictor):
    """The class whose hypothesis a text entails most (Yin et al. 2019,
    arXiv:1909.00161).

    Each class makes a sequence of the text and its hypothesis. The classes'
    probabilities are the softmax of the logits of entailment, as in the pipeline of
    `transformers`.
    """

    row_fields = ("text",)

    def __init__(self, predictor: Predictor, labels: Sequence[str], hypothesis: str):
        """Takes the predictor of a task on pairs, one of whose classes is entailment.

        Args:
          labels: The classes' names.
          hypothesis: A sentence with {}, in whose place each name is put.

        Raises:
          UserError: It is no such task, or the hypothesis has no {}.
        """
        named = f"config.predict.labels={tuple(labels)!r:.60}"
        if not isinstance(predictor, Finetuning) or not isinstance(
            predictor.definition, Text
        ):
            raise UserError(
                f"{named}: is for a model of pairs of texts; leave it empty"
            )
        if len({*labels}) < max(2, len(labels)):
            raise UserError(f"{named}: at least two labels are needed, each named once")
        known = [label.lower() for label in predictor.labels]
        if predictor.kind != "classification" or _ENTAILMENT not in known:
            raise UserError(
                f"{named}: needs a model of natural language inference, with the class "
                f"{_ENTAILMENT}; this one has {', '.join(predictor.labels):.200}"
            )
        if "{}" not in hypothesis:
            raise UserError(
                f"config.predict.hypothesis={hypothesis!r}: has no {{}} for the label"
            )
        self._task, self._labels = predictor, tuple(labels)
        self._hypotheses = [hypothesis.replace("{}", label) for label in labels]
        self._entailment = known.index(_ENTAILMENT)
        self.max_seq_length, self.notices = predictor.max_seq_length, predictor.notices

    @property
    def labels(self) -> tuple[str, ...]:
        return self._labels

    def parse_row(self, row: Row) -> Row:
        """Takes `text`."""
        return {"text": require_text(row, "text")}

    def encode(self, examples: Sequence[Row], split: str) -> list[Feature]:
        """Encodes each text with each hypothesis."""
        pairs = [
            {"text": row["text"], "text_b": hypothesis}
            for row in examples
            for hypothesis in self._hypotheses
        ]
        features, count = self._task.encode(pairs, split), len(self._labels)
        return [x._replace(example=n // count) for n, x in enumerate(features)]

    def make_rows(self, features: Sequence[Feature]) -> Rows:
        return Rows(features, self._task.padding)

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        return self._task.outputs(params, batch)

    def decode(
        self,
        examples: Sequence[Row],
        features: Sequence[Feature],
        outputs: Sequence[Outputs],
    ) -> list[dict[str, Any]]:
        """Returns `label` and `scores`."""
        logits = np.array([x["logits"][self._entailment] for x in outputs], np.float64)
        shares = softmax(logits.reshape(-1, len(self._labels)))
        return [
            {
                "label": self._labels[int(np.argmax(row))],
                "scores": dict(zip(self._labels, row.tolist(), strict=True)),
            }
            for row in shares
        ]
