"""Tags of words: named entities (section 5.3), parts of speech.

Classifies the first token of each word (in a causal model the last, which alone has
seen the whole word), without a CRF unless `config.task.crf` asks for it. The data are
files of columns or rows (data.py).
"""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax import tokenization
from bert_jax.data import word_splitting
from bert_jax.data.rows import Feature
from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.models import crf
from bert_jax.scores.classification import softmax
from bert_jax.tasks.cross_entropy import class_cross_entropy
from bert_jax.tasks.definition import NO_LABEL, Answers, TaskDefinition, numbered_lines
from bert_jax.tasks.ner import data as tagged
from bert_jax.tasks.ner import scores
from bert_jax.tasks.task import require_text, require_words
from bert_jax.types import Arrays


class Tagged(NamedTuple):
    """The answer to a sentence.

    Attributes:
      tags: Tag of each word.
      probabilities: Probability of each of these tags.
    """

    tags: list[str]
    probabilities: list[float]


class Ner(TaskDefinition):
    """Token tagging. A row is a sentence, as `data.read_sentences` has them, and an
    answer is `Tagged`."""

    loss_name = "tagging_loss"
    row_fields = ("text",)

    def __post_init__(self) -> None:
        """Checks the labels, as `data.check_labels`."""
        if self.has_entities:
            tagged.check_labels(self.labels)

    @property
    def heads(self) -> tuple[str, ...]:
        head = "token_classification"
        return (head, "crf") if self.options.crf else (head,)

    @property
    def main_score(self) -> str:
        return "f1" if self.has_entities else "accuracy"

    @property
    def has_entities(self) -> bool:
        """Whether tags are of entities. Plain tags, as parts of speech, are not."""
        return bool(self.options.scheme == "entities")

    def read_rows(self, split: str) -> Sequence[Row] | None:
        """Reads the sentences of a split. A test file may lack tags."""
        source = self.split_file(split)
        if not source:
            return None
        # Without texts to learn from, at every mark: a span hardly ever cuts a word.
        learned = self.options.words == "learned"
        split_text = word_splitting.bert_words if learned else self.split_words
        sentences = tagged.read_sentences(
            source,
            token_column=self.options.token_column,
            tag_column=self.options.tag_column,
            labelled=split != "test",
            split=split_text,
            labels=self.labels,
        )
        tagged.check_columns(source, sentences, has_entities=self.has_entities)
        return sentences

    def group_names(self, rows: Sequence[Row]) -> list[str]:
        """Returns the words of each sentence or, where these are read too, of its
        document."""
        names = super().group_names(rows)
        if not self.options.document_context:
            return names
        sentences: dict[int, list[str]] = {}
        for row, name in zip(rows, names, strict=True):
            sentences.setdefault(row["document"], []).append(name)
        documents = {number: "\0".join(found) for number, found in sentences.items()}
        return [documents[row["document"]] for row in rows]

    def infer_fields(self) -> dict[str, Any]:
        """Returns `task.labels`, the tags of the training data, sorted, O first, and
        with a CRF `task.tag_scheme`, that of these tags, which its guesses keep to."""
        found: dict[str, Any] = {}
        options = self.options
        if options.crf and self.has_entities and not options.tag_scheme:
            found["task.tag_scheme"] = crf.detect_scheme(self._training_tags())
        if not self.labels:
            tags = {*itertools.chain.from_iterable(self._training_tags())}
            ordered = sorted(tags, key=lambda tag: (tag != "O", tag))
            found["task.labels"] = tuple(ordered)
        return found

    def _training_tags(self) -> list[Sequence[str]]:
        return [row["tags"] or () for row in self.rows("train")]

    def fit(self, rows: Sequence[Row], answers: Answers | None) -> dict[str, Any]:
        """Learns from the training rows how a text is split into words.

        Raises:
          UserError: Most rows break `task.tag_scheme`. A few always may, by mistakes of
            the annotators.
        """
        if answers is not None:
            return {}
        if self.options.crf and self.options.tag_scheme:
            scheme, tags = self.options.tag_scheme, self._training_tags()
            tagged = [sentence for sentence in tags if {*sentence} - {"O"}]
            broken = sum(
                not crf.follows_scheme(scheme, sentence) for sentence in tagged
            )
            if 2 * broken > len(tagged):
                raise UserError(
                    f"config.task.tag_scheme={scheme}: {broken:,} of {len(tagged):,} "
                    f"training sentences with entities break it; theirs is "
                    f"{crf.detect_scheme(tags)}; leave it empty to use that"
                )
        if any("text" in row for row in rows):
            return {"words": word_splitting.PUNCTUATION}
        return {"words": word_splitting.learn_rule([row["words"] for row in rows])}

    @functools.cached_property
    def split_words(self) -> Callable[[str], word_splitting.Spans]:
        """Function that splits a text into words by `config.task.words`."""
        match self.options.words:
            case "spaces":
                rule = word_splitting.SPACES
            case "characters":
                rule = word_splitting.CHARACTERS
            case "punctuation":
                rule = word_splitting.PUNCTUATION
            case _:
                rule = self.fitted.get("words", word_splitting.USUAL)
        if rule == word_splitting.PUNCTUATION:
            return word_splitting.bert_words
        return word_splitting.WordSplitter(rule).spans

    def encode(self, rows: Sequence[Row], split: str) -> list[Feature]:
        """Encodes [CLS] words [SEP], each word tokenized by itself.

        A sentence that is too long becomes several windows, and each word is tagged in
        one of them: parts of half the length, each surrounded by as much of the
        sentence as fits. With `config.task.document_context`, surrounds every sentence
        with as many words of its document as fit, equally many on both sides if there
        are enough.

        `labels` has the tag of a word at its first token (its last in a causal model).
        `info` has the positions of these tokens.
        """
        pieces = self._word_tokens(rows)
        sizes = [len(ids) for ids in pieces]
        room = self.options.max_seq_length - 2
        counts = itertools.accumulate(len(row["words"]) for row in rows)
        bounds = list(itertools.pairwise([0, *counts]))
        around = self._documents(rows, bounds, split)
        known = {label: index for index, label in enumerate(self.labels)}
        labelled = all(row.get("tags") is not None for row in rows)
        features = []
        for index, (begin, end) in enumerate(bounds):
            labels = self._label_ids(rows[index], known, split)
            cut = list(cut_words(sizes, begin, end, room))
            if len(cut) > 1:
                what = f"{split}: sentences longer than max_seq_length, split"
                self.text.notices[what] += 1
            for first, last in cut:
                begins, goes_on = around[index]
                # A causal model sees no word that comes after.
                context = (begins, last if self.text.causal else goes_on)
                left, right = add_context(sizes, (first, last), context, room)
                ids = itertools.chain.from_iterable(pieces[left:right])
                input_ids = [self.text.special.cls, *ids, self.text.last]
                part_sizes = np.array(sizes[left:right], int)  # none in an empty text
                ends = np.cumsum(part_sizes)
                tagged = ends if self.text.causal else 1 + ends - part_sizes
                positions = tagged[first - left : last - left]
                columns = {
                    "input_ids": input_ids,
                    "segment_ids": np.zeros(len(input_ids), np.int32),
                }
                if labelled:
                    column = np.full(len(input_ids), NO_LABEL, np.int32)
                    column[positions] = labels[first - begin : last - begin]
                    columns["labels"] = column
                if self.options.crf:
                    marks = np.zeros((2, len(input_ids)), np.int32)
                    # The chain is the sentence, without others around it.
                    chain = tagged[max(begin - left, 0) : end - left]
                    marks[0, positions] = marks[1, chain] = 1
                    columns["tagged"], columns["words"] = marks
                features.append(Feature(index, columns, positions))
        return features

    def row_losses(
        self, logits: Arrays, batch: Arrays
    ) -> Float[Array, "batch *length"]:
        """Returns the cross entropy in nats, or with a CRF [batch]: minus the log of
        the probability of a row's tags."""
        if self.options.crf:
            transitions = crf.read_transitions(logits)
            return -crf.log_likelihood(
                logits["logits"], batch["labels"], batch["tagged"], transitions
            )
        return class_cross_entropy(logits["logits"], jnp.maximum(batch["labels"], 0))

    def row_weights(self, batch: Arrays) -> Float[Array, "batch *length"]:
        """Returns 1 for one token of each word, so all words weigh the same. With a CRF
        it is 1 for each row, as in AllenNLP."""
        if self.options.crf:
            return batch["row_weights"]
        return (batch["labels"] != NO_LABEL) * batch["row_weights"][:, None]

    def decode_answers(
        self, rows: Sequence[Row], features: Sequence[Feature], outputs: Answers
    ) -> list[Tagged]:
        """Returns the most probable tags, of each word or with a CRF together."""
        answers = [Tagged([], []) for _ in rows]
        for feature, output in zip(features, outputs, strict=True):
            answer, words = answers[feature.example], feature.info
            if "tags" in output:
                tags, shares = output["tags"][words], output["probability"][words]
            else:
                every = softmax(output["logits"][words])
                tags, shares = every.argmax(axis=-1), every.max(axis=-1)
            answer.tags.extend(self.labels[i] for i in tags)
            answer.probabilities.extend(shares.tolist())
        return answers

    def scores(self, rows: Sequence[Row], answers: Answers) -> dict[str, float]:
        """Returns `precision`, `recall`, `f1` of the entities as in conlleval, and
        `accuracy` of the tags, as fractions. For plain tags only the accuracy."""
        gold = [row["tags"] for row in rows]
        if not gold or None in gold:
            return {}
        answers = [answer.tags for answer in answers]
        accuracy = {"accuracy": scores.tag_accuracy(gold, answers)}
        if not self.has_entities:
            return accuracy
        return scores.entity_scores(gold, answers) | accuracy

    def baseline_scores(self, rows: Sequence[Row]) -> dict[str, float]:
        """Returns the scores of the split's majority tag (mostly O) for every word."""
        tags = Counter(tag for row in rows for tag in row["tags"])
        majority = tags.most_common(1)[0][0]
        sizes = [len(row["words"]) for row in rows]
        every = [Tagged([majority] * size, [1.0] * size) for size in sizes]
        return self.scores(rows, every)

    def prediction_files(
        self, split: str, rows: Sequence[Row], answers: Answers
    ) -> dict[str, str]:
        """Returns `SPLIT.conll`: words, their tags and the predicted tags.

        Of texts also `SPLIT.jsonl`: `text`, `entities`, and the data's as `gold`.
        """
        tags = [answer.tags for answer in answers]
        files = {f"{split}.conll": tagged.format_columns(rows, tags)}
        if not self.has_entities or not all("text" in row for row in rows):
            return files
        lines = []
        for row, answer in zip(rows, answers, strict=True):
            gold = {}
            if row["tags"] is not None:
                gold = {"gold": _entities(row, Tagged(row["tags"], []))}
            guessed = _entities(row, answer)
            lines.append({"text": row["text"], "entities": guessed, **gold})
        return files | {f"{split}.jsonl": numbered_lines(lines)}

    def parse_row(self, row: Row) -> Row:
        """Takes `{"words": [...]}`, or `{"text": "..."}`, which is split into words as
        the training data was."""
        if ("words" in row) == ("text" in row):
            raise ValueError('either "words" or "text" is required')
        if "words" in row:
            return {"words": require_words(row)}
        text = require_text(row, "text")
        spans = tuple(self.split_words(text))
        words = tuple(text[start:end] for start, end in spans)
        return {"words": words, "text": text, "spans": spans}

    def format_answer(self, row: Row, answer: Tagged) -> Row:
        """Returns `tags`, one per word, for a text also its `words`, and `entities`.

        Each entity has `label`, `start` and `end` (exclusive): offsets of characters,
        with the `text` between them, or indices of words, with the `words` between
        them. Its `score` is the probability of the least probable of its tags.
        """
        result: Row = {"tags": answer.tags}
        if "text" in row:
            result = {"words": list(row["words"]), **result}
        if self.has_entities:
            result["entities"] = _entities(row, answer)
        return result

    def _label_ids(
        self, sentence: Row, known: Mapping[str, int], split: str
    ) -> list[int]:
        tags = sentence.get("tags") or ()
        for index, tag in enumerate(tags):
            if tag in known:
                continue
            place = sentence["places"][index]
            if split == "train":
                raise UserError(
                    f"{self.options.train_file}:{place}: the tag {tag!r} is not in "
                    f"config.task.labels={self.labels}: add it there, or leave "
                    "labels empty"
                )
            what = f"{split}: tags that are not in training, scored as wrong"
            self.text.notices[what] += 1
        return [known.get(tag, NO_LABEL) for tag in tags]

    def _word_tokens(self, rows: Sequence[Row]) -> list[list[int]]:
        """Returns the ids of every word of all sentences, in order. None is empty."""
        room = self.options.max_seq_length - 2
        words = [word for row in rows for word in row["words"]]
        unique = list(dict.fromkeys(words))
        space = tokenization.kind_of(self.text.tokenizer).before_word
        encodings = self.text.tokenize(
            [f"{space}{word}" for word in unique], offsets=False
        )
        ids = {
            word: encoding.ids for word, encoding in zip(unique, encodings, strict=True)
        }
        return [ids[word][:room] or [self.text.special.unk] for word in words]

    def _documents(
        self,
        rows: Sequence[Row],
        bounds: Sequence[tuple[int, int]],
        split: str,
    ) -> Sequence[tuple[int, int]]:
        """Returns the range of words that each sentence's context may come from."""
        # The rows of `predict` are unrelated.
        if not self.options.document_context or split == "predict":
            return bounds
        documents: dict[int, tuple[int, int]] = {}
        for row, (begin, end) in zip(rows, bounds, strict=True):
            document = row["document"]
            documents[document] = (documents.get(document, (begin, end))[0], end)
        return [documents[row["document"]] for row in rows]


def _entities(row: Row, answer: Tagged) -> list[Row]:
    """Returns the entities of a row as `format_answer` has them, without a score if no
    probability is known."""
    found = []
    for label, start, end in scores.find_entities(answer.tags):
        first, last = start, end
        if "text" in row:
            first, last = row["spans"][start][0], row["spans"][end - 1][1]
        name = "text" if "text" in row else "words"
        entity = {"start": first, "end": last, "label": label}
        entity[name] = (
            row["text"][first:last] if "text" in row else row["words"][start:end]
        )
        if answer.probabilities:
            entity["score"] = min(answer.probabilities[start:end])
        found.append(entity)
    return found


def cut_words(
    sizes: Sequence[int], begin: int, end: int, room: int
) -> Iterator[tuple[int, int]]:
    """Cuts the words [begin, end) into parts to be tagged.

    Args:
      sizes: Tokens of each word, at most `room`.
      room: Tokens of a window. Words that all fit are one part. Otherwise each part
        has at most room / 2 tokens, or is one word.
    """
    if sum(sizes[begin:end]) <= room:
        yield begin, end
        return
    first, total = begin, 0
    for index in range(begin, end):
        if total + sizes[index] > room // 2 and index > first:
            yield first, index
            first, total = index, 0
        total += sizes[index]
    yield first, end


def add_context(
    sizes: Sequence[int], part: tuple[int, int], around: tuple[int, int], room: int
) -> tuple[int, int]:
    """Adds words of `around` to a part, alternating right and left, while they fit."""
    left, right = part
    rest = room - sum(sizes[left:right])
    while True:
        before = left, right
        if right < around[1] and sizes[right] <= rest:
            rest -= sizes[right]
            right += 1
        if left > around[0] and sizes[left - 1] <= rest:
            left -= 1
            rest -= sizes[left]
        if before == (left, right):
            return before
