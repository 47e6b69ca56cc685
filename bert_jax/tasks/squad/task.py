"""SQuAD 1.1 and 2.0 (sections 4.2 and 4.3, google-research/bert's run_squad.py)."""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.data.rows import Feature
from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path, write_atomically
from bert_jax.tasks.cross_entropy import of_classes
from bert_jax.tasks.finetuning import Finetuning, Outputs
from bert_jax.tasks.squad import answers as squad_answers
from bert_jax.tasks.squad import data, scores
from bert_jax.tasks.squad import windows as squad_windows
from bert_jax.tasks.squad.answers import Prediction
from bert_jax.tasks.task import require_text
from bert_jax.types import Arrays

_SAVED = ("text", "probability", "start_logit", "end_logit")  # of each guess


class Squad(Finetuning):
    """The answer is a span of the context. In 2.0 there may be no answer.

    Answers a question if the log odds of "no answer" are at most
    `facts["null_threshold"]`.
    """

    head, loss_name, main_score = "question_answering", "span_loss", "f1"
    causal = False  # whether tokens attend to none after them

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        super().__init__(config, tokenizer)
        task = config.task
        least = 3 + len(self.between)  # special tokens, and one of the context
        if task.max_query_length > task.max_seq_length - least:
            raise UserError(
                f"config.task.max_query_length={task.max_query_length}: at most "
                f"config.task.max_seq_length - {least} = "
                f"{task.max_seq_length - least}, to leave room for the context"
            )

    def read_file(self, source: str, split: str) -> Sequence[Row]:
        examples = data.read_questions(source)
        if split != "train" and not self.options.null_answers:
            bare = sum(example["answers"] == [] for example in examples)
            if bare:
                what = f"{split}: questions without an answer, not scored"
                self.notices[what] += bare
        return examples

    def encode(self, examples: Sequence[Row], split: str) -> list[Feature]:
        """Returns the windows of each example.

        A training question has no features if its answer cannot be found or, without
        `null_answers`, if it has none. `notices` counts these questions.
        """
        options, training = self.options, split == "train"
        questions = self.tokenize_texts([row["question"] for row in examples])
        texts = [row["context"] for row in examples]
        contexts = squad_windows.tokenize_contexts(texts, self.tokenize_texts)
        answers = [row.get("answers") if training else None for row in examples]
        golds = self.tokenize_texts(
            [x[0]["text"].strip() if x else "" for x in answers]
        )
        features: list[Feature] = []
        for number, (example, encoding, (ids, offsets), gold) in enumerate(
            zip(examples, questions, contexts, golds, strict=True)
        ):
            question = encoding.ids
            if len(question) > options.max_query_length:
                self.notices[f"{split}: questions cut to max_query_length"] += 1
                question = question[: options.max_query_length]
            answer = self._answer(example, ids, offsets, gold.ids) if training else None
            if isinstance(answer, str):
                self.notices[f"train: {answer}, left out"] += 1
                continue
            for columns, window in self._windows(question, ids, offsets, split):
                if training:
                    start, end = squad_windows.answer_positions(window, answer)
                    columns |= {"start_positions": start, "end_positions": end}
                features.append(Feature(number, columns, window))
        if not features:
            why = "; ".join(f"{what}: {n}" for what, n in self.notices.items())
            raise UserError(
                f"{options.train_file}: no question has an answer that can be trained "
                f"on ({why}); for SQuAD 2.0 set config.task.null_answers"
            )
        return features

    def _answer(
        self,
        example: Row,
        ids: squad_windows.Ids,
        offsets: squad_windows.Offsets,
        gold: list[int],
    ) -> tuple[int, int] | str | None:
        """Returns the first and the last token of a training question's first answer,
        None if it has no answer, or why it cannot be trained on.

        Google's code stops at a question with several answers, or with none in SQuAD
        1.1. It also leaves out answers that it cannot find.

        Args:
          ids: Ids of the context.
          offsets: First character of each of them, and the one past its last.
          gold: Ids of the first answer's text.
        """
        answers, context = example["answers"], example["context"]
        if self.options.null_answers and (not answers or example["is_impossible"]):
            return None
        if not answers:
            return "questions without an answer (task.null_answers is off)"
        place = data.find_answer(context, answers[0])
        if place is None:
            return "answers that are not at answer_start"
        span = squad_windows.answer_tokens(context, place, ids, offsets, gold)
        return "answers without a token" if span is None else span

    def _windows(
        self,
        question: list[int],
        ids: squad_windows.Ids,
        offsets: squad_windows.Offsets,
        split: str,
    ) -> Iterator[tuple[dict[str, Any], squad_windows.Window]]:
        """Yields the columns and the `Window` of each part of a context."""
        first = 1 + len(question) + len(self.between)
        room = self.options.max_seq_length - first - 1
        spans = squad_windows.window_spans(len(ids), room, self.options.doc_stride)
        owned = squad_windows.has_max_context(spans, len(ids))
        for span, is_owned in zip(spans, owned, strict=True):
            part = ids[span.start : sum(span)].tolist()
            columns = {**self.sequence(question, part, split)}
            null = len(columns["input_ids"]) - 1 if self.causal else 0
            yield columns, squad_windows.Window(span, first, is_owned, offsets, null)

    def row_losses(self, logits: Arrays, batch: Arrays) -> Float[Array, "batch"]:
        """Returns the mean of the start's and the end's cross entropy, in nats.

        Google's code includes padding in the softmax. Without it the loss does not
        depend on the batch's length.
        """
        masked = _without_padding(logits, batch)
        start, end = (
            of_classes(masked[f"{side}_logits"], batch[f"{side}_positions"])
            for side in ("start", "end")
        )
        return (start + end) / 2

    def soft_losses(
        self, logits: Arrays, targets: Arrays, batch: Arrays
    ) -> Float[Array, "batch"]:
        ours, theirs = (_without_padding(x, batch) for x in (logits, targets))
        return super().soft_losses(ours, theirs, batch)

    def decode_answers(
        self,
        examples: Sequence[Row],
        features: Sequence[Feature],
        outputs: Sequence[Outputs],
    ) -> list[Prediction]:
        options = self.options
        grouped = itertools.groupby(
            zip(features, outputs, strict=True), key=lambda pair: pair[0].example
        )
        predictions = []
        for number, group in grouped:
            windows, logits = [], []
            for feature, output in group:
                length = len(feature.columns["input_ids"])
                windows.append(feature.info)
                logits.append(
                    (output["start_logits"][:length], output["end_logits"][:length])
                )
            predictions.append(
                squad_answers.best_answers(
                    examples[number]["context"],
                    windows,
                    logits,
                    n_best_size=options.n_best_size,
                    max_answer_length=options.max_answer_length,
                    null_answers=options.null_answers,
                )
            )
        return predictions

    def fit_to_rows(
        self, examples: Sequence[Row], answers: Sequence[Prediction]
    ) -> dict[str, Any]:
        """Fits `null_threshold` for the best F1 (section 4.3)."""
        golds = self._golds(examples)
        if not (golds and self.options.null_answers):
            return {}
        best, odds = _texts_and_odds(examples, answers)
        _, threshold = scores.best_threshold(best, golds, odds)
        return {"null_threshold": threshold}

    def scores(
        self, split: str, examples: Sequence[Row], answers: Sequence[Prediction]
    ) -> dict[str, float]:
        """Returns percentages, as in the official scripts.

        For 2.0 they score the answers at `null_threshold`. `best_exact` and `best_f1`
        each use the threshold that is best on these questions.
        """
        golds = self._golds(examples)
        if not golds:
            return {}
        if not self.options.null_answers:
            return scores.score_version1(self._texts(examples, answers), golds)
        best, odds = _texts_and_odds(examples, answers)
        best_f1, _ = scores.best_threshold(best, golds, odds)
        best_exact, _ = scores.best_threshold(best, golds, odds, scores.exact_match)
        return {
            **scores.score_version2(self._texts(examples, answers), golds),
            "best_exact": best_exact,
            "best_f1": best_f1,
            "null_threshold": self._threshold,
        }

    def baseline_scores(self, split: str, examples: Sequence[Row]) -> dict[str, float]:
        """Returns the scores of never answering, only for 2.0."""
        golds = self._golds(examples)
        if not golds or not self.options.null_answers:
            return {}
        return scores.score_version2({name: "" for name, _ in golds}, golds)

    def write_predictions(
        self,
        folder: Path,
        split: str,
        examples: Sequence[Row],
        answers: Sequence[Prediction],
    ) -> None:
        """Writes predictions.json, nbest_predictions.json, for 2.0 null_odds.json."""
        nbest = {
            example["id"]: [
                {name: getattr(guess, name) for name in _SAVED}
                for guess in answer.guesses
            ]
            for example, answer in zip(examples, answers, strict=True)
        }
        files: dict[str, Any] = {
            "predictions.json": self._texts(examples, answers),
            "nbest_predictions.json": nbest,
        }
        if self.options.null_answers:
            _, files["null_odds.json"] = _texts_and_odds(examples, answers)
        for name, content in files.items():
            text = json.dumps(content, indent=4) + "\n"
            write_atomically(folder / name, text)

    def parse_row(self, row: Row) -> Row:
        return {name: require_text(row, name) for name in ("question", "context")}

    def format_answer(self, example: Row, answer: Prediction) -> Row:
        """Returns the fields of an answer.

        `start` and `end` are characters of the context, null without an answer, and
        `score` is the answer's probability among the n best.
        """
        guess = self._chosen(answer)
        return {
            "answer": guess.text,
            "start": guess.start,
            "end": guess.end,
            "score": guess.probability,
            "null_score": answer.null_score,
        }

    @property
    def _threshold(self) -> float:
        # By default run_squad.py's null_score_diff_threshold.
        return float(self.fitted.get("null_threshold", 0.0))

    def _chosen(self, answer: Prediction) -> squad_answers.Guess:
        if self.options.null_answers:
            return answer.chosen(self._threshold)
        return answer.guesses[0]

    def _texts(
        self, examples: Sequence[Row], answers: Sequence[Prediction]
    ) -> dict[str, str]:
        pairs = zip(examples, answers, strict=True)
        return {example["id"]: self._chosen(answer).text for example, answer in pairs}

    def _golds(self, examples: Sequence[Row]) -> list[tuple[str, list[str]]]:
        """Returns ids and gold answers of the questions that are scored."""
        null = self.options.null_answers
        return [
            (example["id"], [gold["text"] for gold in example["answers"] or ()])
            for example in examples
            if example["answers"] or (null and example["answers"] is not None)
        ]


def _texts_and_odds(
    examples: Sequence[Row], answers: Sequence[Prediction]
) -> tuple[dict[str, str], dict[str, float]]:
    """Returns each question's best text, and its odds of having no answer."""
    pairs = list(zip(examples, answers, strict=True))
    return (
        {example["id"]: answer.best.text for example, answer in pairs},
        {example["id"]: answer.null_odds for example, answer in pairs},
    )


def _without_padding(logits: Arrays, batch: Arrays) -> Arrays:
    """Returns the logits, whose exponential is 0 at padding."""
    real = batch["input_mask"] > 0
    return {k: jnp.where(real, x, jnp.finfo(x.dtype).min) for k, x in logits.items()}
