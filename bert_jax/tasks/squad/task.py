"""SQuAD 1.1 and 2.0 (sections 4.2 and 4.3, google-research/bert's run_squad.py)."""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from jaxtyping import Array, Float

from bert_jax.data.rows import Feature
from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.tasks.cross_entropy import class_cross_entropy
from bert_jax.tasks.definition import Answers, TaskDefinition
from bert_jax.tasks.distillation import hide_padding
from bert_jax.tasks.squad import answers as squad_answers
from bert_jax.tasks.squad import data, scores
from bert_jax.tasks.squad import windows as squad_windows
from bert_jax.tasks.squad.answers import Prediction
from bert_jax.tasks.task import require_text
from bert_jax.types import Arrays

_SAVED = ("text", "probability", "start_logit", "end_logit")  # of each guess


class Squad(TaskDefinition):
    """The answer is a span of the context. In 2.0 there may be no answer.

    Answers a question if the log odds of "no answer" are at most
    `fitted["null_threshold"]`.
    """

    heads: ClassVar[tuple[str, ...]] = ("question_answering",)
    loss_name, main_score = "span_loss", "f1"
    kind = "spans"
    row_fields = ("question", "context")

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
          UserError: A question leaves no room for the context.
        """
        options = self.options
        least = 3 + len(self.text.special.between)  # one token of the context
        if options.max_query_length > options.max_seq_length - least:
            raise UserError(
                f"config.task.max_query_length={options.max_query_length}: at most "
                f"config.task.max_seq_length - {least} = "
                f"{options.max_seq_length - least}, to leave room for the context"
            )

    def read_rows(self, split: str) -> Sequence[Row] | None:
        source = self.split_file(split)
        return data.read_questions(source) if source else None

    def group_names(self, rows: Sequence[Row]) -> list[str]:
        return [row["context"] for row in rows]

    def encode(self, rows: Sequence[Row], split: str) -> list[Feature]:
        """Returns the windows of each row.

        A training question has no features if its answer cannot be found or, without
        `null_answers`, if it has none. `notices` counts these questions.
        """
        options, training = self.options, split == "train"
        is_scored = split not in ("train", "predict")
        bare = sum(row["answers"] == [] for row in rows) if is_scored else 0
        if bare and not options.null_answers:
            what = f"{split}: questions without an answer, not scored"
            self.text.notices[what] += bare
        questions = self.text.tokenize([row["question"] for row in rows])
        texts = [row["context"] for row in rows]
        contexts = squad_windows.tokenize_contexts(texts, self.text.tokenize)
        answers = [row.get("answers") if training else None for row in rows]
        golds = self.text.tokenize([x[0]["text"].strip() if x else "" for x in answers])
        features: list[Feature] = []
        for number, (example, encoding, (ids, offsets), gold) in enumerate(
            zip(rows, questions, contexts, golds, strict=True)
        ):
            question = encoding.ids
            if len(question) > options.max_query_length:
                self.text.notices[f"{split}: questions cut to max_query_length"] += 1
                question = question[: options.max_query_length]
            answer = self._answer(example, ids, offsets, gold.ids) if training else None
            if isinstance(answer, str):
                self.text.notices[f"train: {answer}, left out"] += 1
                continue
            for columns, window in self._windows(question, ids, offsets, split):
                if training:
                    start, end = squad_windows.answer_positions(window, answer)
                    columns |= {"start_positions": start, "end_positions": end}
                features.append(Feature(number, columns, window))
        if not features:
            why = "; ".join(f"{what}: {n}" for what, n in self.text.notices.items())
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
        first = 1 + len(question) + len(self.text.special.between)
        room = self.options.max_seq_length - first - 1
        spans = squad_windows.window_spans(len(ids), room, self.options.doc_stride)
        owned = squad_windows.has_max_context(spans, len(ids))
        for span, is_owned in zip(spans, owned, strict=True):
            part = ids[span.start : sum(span)].tolist()
            columns = {**self.text.sequence(question, part, split)}
            null = len(columns["input_ids"]) - 1 if self.text.causal else 0
            yield columns, squad_windows.Window(span, first, is_owned, offsets, null)

    def row_losses(self, logits: Arrays, batch: Arrays) -> Float[Array, "batch"]:
        """Returns the mean of the start's and the end's cross entropy, in nats.

        Google's code includes padding in the softmax. Without it the loss does not
        depend on the batch's length.
        """
        masked = hide_padding(logits, batch)
        start, end = (
            class_cross_entropy(masked[f"{side}_logits"], batch[f"{side}_positions"])
            for side in ("start", "end")
        )
        return (start + end) / 2

    def decode_answers(
        self, rows: Sequence[Row], features: Sequence[Feature], outputs: Answers
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
                    rows[number]["context"],
                    windows,
                    logits,
                    n_best_size=options.n_best_size,
                    max_answer_length=options.max_answer_length,
                    null_answers=options.null_answers,
                )
            )
        return predictions

    def fit(self, rows: Sequence[Row], answers: Answers | None) -> dict[str, Any]:
        """Fits `null_threshold` to dev, for the best F1 (section 4.3)."""
        if answers is None or not self.options.null_answers:
            return {}
        if not (golds := self._golds(rows)):
            return {}
        best, odds = _texts_and_odds(rows, answers)
        _, threshold = scores.best_threshold(best, golds, odds)
        return {"null_threshold": threshold}

    def scores(self, rows: Sequence[Row], answers: Answers) -> dict[str, float]:
        """Returns percentages, as in the official scripts.

        For 2.0 they score the answers at `null_threshold`. `best_exact` and `best_f1`
        each use the threshold that is best on these questions.
        """
        golds = self._golds(rows)
        if not golds:
            return {}
        if not self.options.null_answers:
            return scores.score_version1(self._texts(rows, answers), golds)
        best, odds = _texts_and_odds(rows, answers)
        best_f1, _ = scores.best_threshold(best, golds, odds)
        best_exact, _ = scores.best_threshold(best, golds, odds, scores.exact_match)
        return {
            **scores.score_version2(self._texts(rows, answers), golds),
            "best_exact": best_exact,
            "best_f1": best_f1,
            "null_threshold": self._threshold,
        }

    def baseline_scores(self, rows: Sequence[Row]) -> dict[str, float]:
        """Returns the scores of never answering, only for 2.0."""
        golds = self._golds(rows)
        if not golds or not self.options.null_answers:
            return {}
        return scores.score_version2({name: "" for name, _ in golds}, golds)

    def prediction_files(
        self, split: str, rows: Sequence[Row], answers: Answers
    ) -> dict[str, str]:
        """Returns predictions.json, nbest_predictions.json, for 2.0 null_odds.json."""
        nbest = {
            row["id"]: [
                {name: getattr(guess, name) for name in _SAVED}
                for guess in answer.guesses
            ]
            for row, answer in zip(rows, answers, strict=True)
        }
        files: dict[str, Any] = {
            "predictions.json": self._texts(rows, answers),
            "nbest_predictions.json": nbest,
        }
        if self.options.null_answers:
            _, files["null_odds.json"] = _texts_and_odds(rows, answers)
        return {n: json.dumps(x, indent=4) + "\n" for n, x in files.items()}

    def parse_row(self, row: Row) -> Row:
        return {name: require_text(row, name) for name in ("question", "context")}

    def format_answer(self, row: Row, answer: Prediction) -> Row:
        """Returns the fields of an answer.

        `start` and `end` are characters of the context, null without an answer, and
        `score` is the answer's probability among the n best.
        """
        guess = self._choose_answer(answer)
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

    def _choose_answer(self, answer: Prediction) -> squad_answers.Guess:
        if self.options.null_answers:
            return answer.apply_threshold(self._threshold)
        return answer.guesses[0]

    def _texts(self, rows: Sequence[Row], answers: Answers) -> dict[str, str]:
        pairs = zip(rows, answers, strict=True)
        return {row["id"]: self._choose_answer(answer).text for row, answer in pairs}

    def _golds(self, rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
        """Returns ids and gold answers of the questions that are scored."""
        null = self.options.null_answers
        return [
            (row["id"], [gold["text"] for gold in row["answers"] or ()])
            for row in rows
            if row["answers"] or (null and row["answers"] is not None)
        ]


def _texts_and_odds(
    rows: Sequence[Row], answers: Answers
) -> tuple[dict[str, str], dict[str, float]]:
    """Returns each question's best text, and its odds of having no answer."""
    pairs = list(zip(rows, answers, strict=True))
    return (
        {row["id"]: answer.best.text for row, answer in pairs},
        {row["id"]: answer.null_odds for row, answer in pairs},
    )
