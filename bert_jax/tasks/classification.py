"""Classification, several labels at once, or regression of a text or a pair of texts.

GLUE and the user's own texts share all of this; each adds only how to read records.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.data import truncation
from bert_jax.data.rows import Feature
from bert_jax.data.texts import sorted_labels
from bert_jax.runtime.storage import Path, write_atomically
from bert_jax.scores import classification as scores
from bert_jax.scores.probabilities import sigmoid, softmax
from bert_jax.tasks.cross_entropy import of_classes, of_labels
from bert_jax.tasks.finetuning import Outputs
from bert_jax.tasks.shared_rows import SharedRows
from bert_jax.types import Arrays

SCORES: dict[str, dict[str, Callable[..., float]]] = {
    "classification": {
        "accuracy": scores.accuracy,
        "f1": scores.f1,  # of two classes, that of the second in sorted order
        "matthews": scores.matthews,
        "macro_f1": scores.macro_f1,
    },
    "multilabel": {
        "f1": scores.f1,
        "accuracy": scores.exact_match,
        "macro_f1": scores.macro_f1,
    },
    "regression": {"pearson": scores.pearson, "spearman": scores.spearman},
}
_MAIN_SCORES = {
    "classification": "accuracy",
    "multilabel": "f1",
    "regression": "spearman",
}
# Characters tokenized together, or else one text: the tokenizer's objects take a
# hundred times the memory of a text.
_CHARACTERS = 2_000_000


class TextExample(NamedTuple):
    """A text, or a pair.

    `label` is the index of the class, a tuple with 0 or 1 for each label (several
    labels at once), or a number (regression); None if unknown.
    """

    id: int | str  # identifies its prediction in the files
    text: str
    text_b: str | None = None
    label: int | float | tuple[int, ...] | None = None


class Classification(SharedRows[TextExample, np.ndarray]):
    """A subclass adds `read`, and `find_labels` if the labels are in the data.

    Args:
      config: `config.task.kind` and `config.task.truncation` (of single texts: head,
        tail, head_tail) are optional.
      kind: the default of `config.task.kind`: classification, multilabel or regression.

    An answer is the example's logits, [labels].
    """

    head = "sequence_classification"

    def __init__(
        self,
        config: ConfigDict,
        tokenizer: Tokenizer | None = None,
        kind: str = "classification",
    ):
        super().__init__(config, tokenizer)
        self.kind: str = config.task.get("kind", kind)
        self.truncation: str = config.task.get("truncation", "head")
        self.main_score = _MAIN_SCORES[self.kind]
        self.loss_name = f"{self.kind}_loss"
        self._last = tokenization.last_id(self.tokenizer)
        self._between = tokenization.between(self.tokenizer)
        self._odd_to_longer = tokenization.kind_of(self.tokenizer).odd_to_longer

    @property
    def score_names(self) -> tuple[str, ...]:
        """The SCORES to report; with `macro_f1` also `f1:CLASS` of each class."""
        if self.kind == "classification" and len(self.labels) != 2:
            return ("accuracy", "macro_f1")
        return tuple(SCORES[self.kind])

    def find_labels(self) -> Sequence[str]:
        """One output for a number; a subclass finds the names of classes."""
        if self.kind == "regression":
            return ("score",)
        return super().find_labels()

    def encode(self, examples: Sequence[TextExample], split: str) -> list[Feature]:
        """[CLS] text [SEP], or [CLS] text [SEP] text_b [SEP]; the second part's segment
        is 1 (run_classifier.py, convert_single_example).

        A second text without any piece counts as no second text, as there.
        """
        labelled = all(example.label is not None for example in examples)
        features = []
        pieces = zip(
            self._pieces([example.text for example in examples]),
            self._pieces([example.text_b or "" for example in examples]),
            strict=True,
        )
        for index, (a, b) in enumerate(pieces):
            columns = self._sequence(a, b, split)
            if labelled:
                label: Any = examples[index].label
                several = self.kind == "multilabel"
                columns["label"] = np.array(label, np.float32) if several else label
            features.append(Feature(index, columns))
        return features

    def losses(self, logits: Arrays, batch: Arrays) -> Float[Array, "batch"]:
        """Cross entropy in nats; for multilabel, its mean over labels; for regression,
        the squared error. Hugging Face uses the same losses.
        """
        outputs, labels = logits["logits"], batch["label"]
        if self.kind == "classification":
            return of_classes(outputs, labels)
        if self.kind == "multilabel":
            return of_labels(outputs, labels).mean(axis=-1)
        return jnp.square(outputs[:, 0] - labels)

    def answers(
        self,
        examples: Sequence[TextExample],
        features: Sequence[Feature],
        outputs: Sequence[Outputs],
    ) -> list[np.ndarray]:
        """The logits: one feature is one example."""
        del examples, features
        return [output["logits"] for output in outputs]

    def guess(self, answer: np.ndarray) -> int | float | tuple[int, ...]:
        """Turns logits into a label; multilabel predicts labels from 0.5 on."""
        if self.kind == "classification":
            return int(np.argmax(answer))
        if self.kind == "multilabel":
            return tuple(int(logit >= 0) for logit in answer)
        return float(answer[0])

    def scores(
        self,
        split: str,
        examples: Sequence[TextExample],
        answers: Sequence[np.ndarray],
    ) -> dict[str, float]:
        """The scores of `score_names`, fractions; empty if a label is unknown.

        For two classes, F1 is that of the second in sorted order ("1", "yes", "pos"),
        as in scikit-learn, whatever the order of the model's outputs.
        """
        del split
        if not examples or any(example.label is None for example in examples):
            return {}
        labels = np.array([example.label for example in examples])
        guesses = np.array([self.guess(answer) for answer in answers])
        functions, names = SCORES[self.kind], list(self.labels)
        if self.kind == "classification":
            names = sorted_labels(set(self.labels))
            ranks = np.array([names.index(name) for name in self.labels])
            labels, guesses = ranks[labels], ranks[guesses]
        if self.kind == "regression":
            labels = labels.astype(np.float64)
        found = {name: functions[name](labels, guesses) for name in self.score_names}
        if "macro_f1" in found:
            each = scores.f1_of_each(labels, guesses, len(names)).tolist()
            found |= {f"f1:{name}": x for name, x in zip(names, each, strict=True)}
        return found

    def baseline(self, split: str, examples: Sequence[TextExample]) -> dict[str, float]:
        """The scores of always giving the split's majority label (or mean score)."""
        labels = [example.label for example in examples]
        if not labels or None in labels:
            return {}
        if self.kind == "regression":
            answer = np.array([np.mean(np.array(labels))])
        else:
            label = np.array(Counter(labels).most_common(1)[0][0])
            if self.kind == "classification":
                label = np.arange(len(self.labels)) == label
            answer = np.where(label, 1, -1)
        return self.scores(split, examples, [answer] * len(examples))

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[TextExample],
        answers: Sequence[np.ndarray],
    ) -> None:
        """`SPLIT.jsonl`: a line for each example, its `id` and its `result`."""
        lines = [
            json.dumps(
                {"id": example.id, **self.result(example, answer)},
                ensure_ascii=False,
            )
            for example, answer in zip(examples, answers, strict=True)
        ]
        write_atomically(folder / f"{split}.jsonl", "".join(f"{x}\n" for x in lines))

    @property
    def pairs(self) -> bool:
        """Whether every example is a pair; where False, one may be."""
        return bool(self.config.task.get("text_b"))

    def parse(self, row: dict[str, Any]) -> TextExample:
        """`text`, and `text_b` for a pair."""
        text, text_b = row.get("text"), row.get("text_b")
        if not isinstance(text, str):
            raise ValueError('"text" is required, a string')
        if text_b is not None and not isinstance(text_b, str):
            raise ValueError('"text_b" is not a string')
        if text_b is None and self.pairs:
            raise ValueError('"text_b" is required, a string: the task is of pairs')
        return TextExample(0, text, text_b)

    def result(self, example: TextExample, answer: np.ndarray) -> dict[str, Any]:
        """`label` (or `labels`) and the probabilities as `scores`; or `score`."""
        del example
        if self.kind == "regression":
            return {"score": float(answer[0])}
        logits = answer.astype(np.float64)
        shares = softmax if self.kind == "classification" else sigmoid
        probabilities = dict(zip(self.labels, shares(logits).tolist(), strict=True))
        guess = self.guess(answer)
        if isinstance(guess, tuple):
            names = [name for name, g in zip(self.labels, guess, strict=True) if g]
            return {"labels": names, "scores": probabilities}
        return {"label": self.labels[int(guess)], "scores": probabilities}

    def _pieces(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Yields the ids of each text's tokens."""
        ends = np.cumsum([len(text) for text in texts]) // _CHARACTERS
        for _, some in itertools.groupby(range(len(texts)), key=ends.__getitem__):
            encodings = self.tokenize([texts[i] for i in some], offsets=False)
            yield from (encoding.ids for encoding in encodings)

    def _sequence(self, a: list[int], b: list[int], split: str) -> dict[str, Any]:
        around = 2 + (len(self._between) if b else 0)
        room = self.config.task.max_seq_length - around
        if not a:
            self.notices[f"{split}: texts without any piece"] += 1
        if len(a) + len(b) > room:
            self.notices[f"{split}: texts longer than max_seq_length, cut"] += 1
            if b:
                first, second = truncation.pair_lengths(
                    len(a), len(b), room, self._odd_to_longer
                )
                a, b = a[:first], b[:second]
            else:
                a = truncation.truncated(a, room, self.truncation)
        between = self._between if b else ()
        ids = [self.special.cls, *a, *between, *b, self._last]
        # What ends the first text is part of it.
        segments = (np.arange(len(ids)) > len(a) + 1).astype(np.int32)
        return {"input_ids": np.array(ids, np.int32), "segment_ids": segments}
