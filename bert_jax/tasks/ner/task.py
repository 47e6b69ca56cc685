"""Tags of words: named entities (section 5.3), parts of speech.

Classifies the first token of each word (in a causal model the last, which alone has
seen the whole word), without a CRF unless `config.task.crf` asks for it. The data are
files of columns or rows (data.py).
"""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.data import word_splitting
from bert_jax.data.rows import Feature
from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.models import crf
from bert_jax.runtime.storage import Path, write_atomically
from bert_jax.tasks.cross_entropy import of_classes
from bert_jax.tasks.finetuning import Finetuning, Outputs
from bert_jax.tasks.ner import data as tagged
from bert_jax.tasks.ner import scores
from bert_jax.tasks.task import Data, require_text, require_words
from bert_jax.types import Arrays

_NO_LABEL = -1  # for tokens that are not tagged
Tags = list[str]


class Ner(Finetuning):
    """Token tagging. An answer is the sentence's tags.

    A row is a sentence, as `data.read_texts` has them. One that comes from a text also
    has the `text` and the `spans` of its words: characters, [start, end).
    """

    head = "token_classification"
    loss_name = "tagging_loss"
    fill: Mapping[str, int] = {"labels": _NO_LABEL}
    causal = False  # whether tokens attend to none after them

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        super().__init__(config, tokenizer)
        self.in_entities = self.options.scheme == "entities"
        self.main_score = "f1" if self.in_entities else "accuracy"
        if self.in_entities:
            tagged.check_labels(self.labels)

    @property
    def crf(self) -> bool:
        """Whether a conditional random field joins the tags of a row."""
        return bool(self.options.crf)

    @property
    def heads(self) -> tuple[str, ...]:
        return (self.head, "crf") if self.crf else (self.head,)

    def resolve(self) -> None:
        """Resolves as other tasks do, and finds the scheme that a CRF's guesses keep
        to: that of the training data's tags."""
        options = self.options
        if self.crf and self.in_entities and not options.tag_scheme:
            tags = [row["tags"] or () for row in self.examples("train")]
            self.fill_in({"task.tag_scheme": crf.found_in(tags)})
        super().resolve()

    def read_file(self, source: str, split: str) -> Sequence[Row]:
        """Reads the sentences of a split. A test file may lack tags."""
        sentences = tagged.read_sentences(
            source,
            token_column=self.options.token_column,
            tag_column=self.options.tag_column,
            labelled=split != "test",
            labels=self.labels,
        )
        tagged.check_columns(source, sentences, in_entities=self.in_entities)
        return sentences

    def find_labels(self) -> Sequence[str]:
        """Returns the tags of the training data, sorted, O first."""
        tags = {t for row in self.examples("train") for t in row["tags"] or ()}
        return sorted(tags, key=lambda tag: (tag != "O", tag))

    def training_data(self) -> Data:
        """Prepares the data, and learns how a text is split into words.

        See `Data.record`.
        """
        data = super().training_data()
        self._check_scheme()
        sentences = [row["words"] for row in self.examples("train")]
        data.record["facts"] = {"words": word_splitting.learn_rule(sentences)}
        return data

    def _check_scheme(self) -> None:
        """Raises UserError if most training sentences break `task.tag_scheme`. A few
        always may, by mistakes of the annotators."""
        scheme = self.options.tag_scheme
        if not (self.crf and scheme):
            return
        tags = [row["tags"] or () for row in self.examples("train")]
        tagged = [each for each in tags if {*each} - {"O"}]
        broken = sum(not crf.keeps_to(scheme, each) for each in tagged)
        if 2 * broken > len(tagged):
            raise UserError(
                f"config.task.tag_scheme={scheme}: {broken:,} of {len(tagged):,} "
                f"training sentences with entities break it; theirs is "
                f"{crf.found_in(tags)}; leave it empty to use that"
            )

    def with_fitted(self, fitted: Mapping[str, Any]) -> Self:
        task = super().with_fitted(fitted)
        vars(task).pop("split_words", None)  # by these values
        return task

    @functools.cached_property
    def split_words(self) -> Callable[[str], word_splitting.Spans]:
        """Function that splits a text into words by `config.task.words`."""
        match self.options.words:
            case "spaces":
                rule = word_splitting.SPACES
            case "characters":
                rule = word_splitting.CHARACTERS
            case "punctuation":
                return word_splitting.bert_words
            case _:
                rule = self.fitted.get("words", word_splitting.USUAL)
        return word_splitting.WordSplitter(rule).spans

    def encode(self, examples: Sequence[Row], split: str) -> list[Feature]:
        """Encodes [CLS] words [SEP], each word tokenized by itself.

        A sentence that is too long becomes several windows, and each word is tagged in
        one of them: parts of half the length, each surrounded by as much of the
        sentence as fits. With `config.task.document_context`, surrounds every sentence
        with as many words of its document as fit, equally many on both sides if there
        are enough.

        `labels` has the tag of a word at its first token (its last, if `causal`).
        `info` has the positions of these tokens.
        """
        pieces = self._word_tokens(examples)
        sizes = [len(ids) for ids in pieces]
        room = self.options.max_seq_length - 2
        counts = itertools.accumulate(len(row["words"]) for row in examples)
        bounds = list(itertools.pairwise([0, *counts]))
        around = self._documents(examples, bounds, split)
        known = {label: index for index, label in enumerate(self.labels)}
        labelled = all(row.get("tags") is not None for row in examples)
        features = []
        for index, (begin, end) in enumerate(bounds):
            labels = self._label_ids(examples[index], known, split)
            cut = list(cut_words(sizes, begin, end, room))
            if len(cut) > 1:
                what = f"{split}: sentences longer than max_seq_length, split"
                self.notices[what] += 1
            for first, last in cut:
                begins, goes_on = around[index]
                # A causal model sees no word that comes after.
                context = (begins, last if self.causal else goes_on)
                left, right = add_context(sizes, (first, last), context, room)
                ids = itertools.chain.from_iterable(pieces[left:right])
                input_ids = [self.special_tokens.cls, *ids, self.last]
                part_sizes = np.array(sizes[left:right], int)  # none in an empty text
                ends = np.cumsum(part_sizes)
                tagged = ends if self.causal else 1 + ends - part_sizes
                positions = tagged[first - left : last - left]
                columns = {
                    "input_ids": input_ids,
                    "segment_ids": np.zeros(len(input_ids), np.int32),
                }
                if labelled:
                    column = np.full(len(input_ids), _NO_LABEL, np.int32)
                    column[positions] = labels[first - begin : last - begin]
                    columns["labels"] = column
                if self.crf:
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
        if self.crf:
            transitions = _transitions(logits)
            return -crf.log_likelihood(
                logits["logits"], batch["labels"], batch["tagged"], transitions
            )
        return of_classes(logits["logits"], jnp.maximum(batch["labels"], 0))

    def row_weights(self, batch: Arrays) -> Float[Array, "batch *length"]:
        """Returns 1 for one token of each word, so all words weigh the same. With a CRF
        it is 1 for each row, as in AllenNLP."""
        if self.crf:
            return batch["row_weights"]
        return (batch["labels"] != _NO_LABEL) * batch["row_weights"][:, None]

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """Returns the logits. With a CRF it returns `tags` [batch, length], the most
        probable ones that the scheme allows, and each token's largest logit."""
        logits = self.logits(params, batch)
        if not self.crf:
            return logits
        allowed = crf.allowed(self.labels, self.options.tag_scheme or "none")
        transitions = _transitions(logits).within(allowed)
        # The sentence's words around the part that the row tags, too: an entity may
        # continue where a sentence is cut.
        tags = crf.viterbi(logits["logits"], batch["words"], transitions)
        return {"tags": tags, "largest": logits["logits"].max(axis=-1)}

    def decode_answers(
        self,
        examples: Sequence[Row],
        features: Sequence[Feature],
        outputs: Sequence[Outputs],
    ) -> list[Tags]:
        """Returns the most probable tag of each word."""
        answers: list[Tags] = [[] for _ in examples]
        for feature, output in zip(features, outputs, strict=True):
            tags = output["tags"] if self.crf else output["logits"].argmax(axis=-1)
            best = tags[feature.info]
            answers[feature.example] += [self.labels[i] for i in best]
        return answers

    def scores(
        self, split: str, examples: Sequence[Row], answers: Sequence[Tags]
    ) -> dict[str, float]:
        """Returns `precision`, `recall`, `f1` of the entities as in conlleval, and
        `accuracy` of the tags, as fractions. For plain tags only the accuracy."""
        gold = [row["tags"] for row in examples]
        if not gold or None in gold:
            return {}
        accuracy = {"accuracy": scores.tag_accuracy(gold, answers)}
        if not self.in_entities:
            return accuracy
        return scores.entity_scores(gold, answers) | accuracy

    def baseline_scores(self, split: str, examples: Sequence[Row]) -> dict[str, float]:
        """Returns the scores of the split's majority tag (mostly O) for every word."""
        tags = Counter(tag for row in examples for tag in row["tags"])
        majority = tags.most_common(1)[0][0]
        answers = [[majority] * len(row["words"]) for row in examples]
        return self.scores(split, examples, answers)

    def write_predictions(
        self,
        folder: Path,
        split: str,
        examples: Sequence[Row],
        answers: Sequence[Tags],
    ) -> None:
        """Writes `<split>.conll`: words, their tags and the predicted tags."""
        text = tagged.as_columns(examples, answers)
        write_atomically(folder / f"{split}.conll", text)

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

    def format_answer(self, example: Row, answer: Tags) -> Row:
        """Returns `tags`, one per word, for a text also its `words`, and `entities`.

        Each entity has `type`, `start` and `end` (exclusive): offsets of characters,
        with the `text` between them, or indices of words, with the `words` between
        them.
        """
        result: Row = {"tags": answer}
        if "text" in example:
            result = {"words": list(example["words"]), **result}
        if self.in_entities:
            entities = scores.find_entities(answer)
            result["entities"] = [_place(example, entity) for entity in entities]
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
            self.notices[what] += 1
        return [known.get(tag, _NO_LABEL) for tag in tags]

    def _word_tokens(self, examples: Sequence[Row]) -> list[list[int]]:
        """Returns the ids of every word of all sentences, in order. None is empty."""
        room = self.options.max_seq_length - 2
        words = [word for example in examples for word in example["words"]]
        unique = list(dict.fromkeys(words))
        space = tokenization.kind_of(self.tokenizer).before_word
        encodings = self.tokenize_texts(
            [f"{space}{word}" for word in unique], offsets=False
        )
        ids = {word: each.ids for word, each in zip(unique, encodings, strict=True)}
        return [ids[word][:room] or [self.special_tokens.unk] for word in words]

    def _documents(
        self,
        examples: Sequence[Row],
        bounds: Sequence[tuple[int, int]],
        split: str,
    ) -> Sequence[tuple[int, int]]:
        """Returns the range of words that each sentence's context may come from."""
        # The rows of `predict` are unrelated.
        if not self.options.document_context or split == "predict":
            return bounds
        documents: dict[int, tuple[int, int]] = {}
        for example, (begin, end) in zip(examples, bounds, strict=True):
            document = example["document"]
            documents[document] = (documents.get(document, (begin, end))[0], end)
        return [documents[example["document"]] for example in examples]


def _transitions(logits: Arrays) -> crf.Transitions:
    return crf.Transitions(*(logits[name] for name in crf.Transitions._fields))


def _place(example: Row, entity: scores.Entity) -> Row:
    type_, start, end = entity
    if "text" not in example:
        words = list(example["words"][start:end])
        return {"type": type_, "start": start, "end": end, "words": words}
    first, last = example["spans"][start][0], example["spans"][end - 1][1]
    text = example["text"][first:last]
    return {"type": type_, "start": first, "end": last, "text": text}


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
