"""Tags of words: named entities (section 5.3), parts of speech.

Classifies the first piece of each word (in a causal model the last, which alone has
seen the whole word), without a CRF. The data are column files
(bert_jax/tasks/ner/conll.py).
"""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.data import word_rule_learning, word_splitting
from bert_jax.data.rows import Feature
from bert_jax.data.word_splitting import Spans, WordSplitter
from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path, write_atomically
from bert_jax.tasks.cross_entropy import of_classes
from bert_jax.tasks.finetuning import Finetuning, Outputs
from bert_jax.tasks.ner import conll, scores
from bert_jax.tasks.ner.column_check import check_columns, check_labels
from bert_jax.tasks.ner.windows import parts, widen
from bert_jax.tasks.task import Data
from bert_jax.types import Arrays

_NO_LABEL = -1  # for pieces that are not tagged
Tags = list[str]


class Example(NamedTuple):
    """A sentence; if it comes from a text, also the text and its words' offsets."""

    sentence: conll.Sentence
    text: str | None = None
    spans: tuple[tuple[int, int], ...] = ()  # characters, [start, end)


class Ner(Finetuning[Example, Tags]):
    """Token tagging; an answer is the sentence's tags."""

    head = "token_classification"
    loss_name = "tagging_loss"
    fill: Mapping[str, int] = {"labels": _NO_LABEL}
    causal = False  # a token's vector has seen what is before it only

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        super().__init__(config, tokenizer)
        self.in_entities = config.task.scheme == "entities"
        self.main_score = "f1" if self.in_entities else "accuracy"
        if self.in_entities:
            check_labels(self.labels)
        self._files: dict[str, conll.ColumnFile] = {}

    def read(self, split: str) -> Sequence[Example] | None:
        """The sentences of `config.task.<split>_file`; a test file may have no tags."""
        task = self.config.task
        path = task.get(f"{split}_file")
        if not path:
            return None
        widths = (file.width for file in self._files.values())
        file = conll.read_columns(
            path,
            token_column=task.token_column,
            tag_column=task.tag_column,
            labelled=split != "test",
            tagged_width=max(widths, default=0) if split == "test" else 0,
            labels=self.labels,
        )
        if split == "test" and file.sentences[0].tags is None:
            self.notices["test: files without tags, not scored"] += 1
        check_columns(
            path,
            file,
            token_column=task.token_column,
            tag_column=task.tag_column,
            in_entities=self.in_entities,
        )
        if task.document_context and not file.sentences[-1].document:
            what = f"{split}: files without -DOCSTART-, taken as one document"
            self.notices[what] += 1
        self._files[split] = file
        return [Example(sentence) for sentence in file.sentences]

    def find_labels(self) -> Sequence[str]:
        """The tags of the training data, sorted, O first."""
        tags = {t for e in self.examples("train") for t in e.sentence.tags or ()}
        return sorted(tags, key=lambda tag: (tag != "O", tag))

    def training_data(self) -> Data:
        """Also learns how a text is split into words; see `Data.record`."""
        data = super().training_data()
        sentences = [example.sentence.words for example in self.examples("train")]
        data.record["facts"] = {"words": word_rule_learning.learn(sentences)}
        return data

    @functools.cached_property
    def split_words(self) -> Callable[[str], Spans]:
        """Splits a text into words by the rule that `config.task.words` names."""
        match self.config.task.words:
            case "spaces":
                rule = word_splitting.SPACES
            case "characters":
                rule = word_splitting.CHARACTERS
            case "punctuation":
                return word_splitting.bert_words
            case _:
                rule = self.facts.get("words", word_splitting.USUAL)
        return WordSplitter(rule).spans

    def encode(self, examples: Sequence[Example], split: str) -> list[Feature]:
        """[CLS] words [SEP], each word tokenised by itself.

        A sentence that is too long becomes several windows, and each word is tagged in
        one of them: parts of half the length, each surrounded by as much of the
        sentence as fits. With `config.task.document_context`, surrounds every sentence
        with as many words of its document as fit, equally many on both sides if there
        are enough.

        `labels` has the tag of a word at its first piece (its last, if `causal`);
        `info` has the positions of these pieces.
        """
        pieces = self._pieces(examples, split)
        sizes = [len(ids) for ids in pieces]
        room = self.config.task.max_seq_length - 2
        ends_with = tokenization.last_id(self.tokenizer)
        counts = itertools.accumulate(len(e.sentence.words) for e in examples)
        bounds = list(itertools.pairwise([0, *counts]))
        around = self._documents(examples, bounds, split)
        known = {label: index for index, label in enumerate(self.labels)}
        labelled = all(example.sentence.tags is not None for example in examples)
        features = []
        for index, (begin, end) in enumerate(bounds):
            sentence = examples[index].sentence
            labels = self._label_ids(sentence, known, split)
            cut = list(parts(sizes, begin, end, room))
            if len(cut) > 1:
                what = f"{split}: sentences longer than max_seq_length, split"
                self.notices[what] += 1
            for first, last in cut:
                begins, goes_on = around[index]
                # A causal model sees no word that comes after.
                context = (begins, last if self.causal else goes_on)
                left, right = widen(sizes, (first, last), context, room)
                ids = itertools.chain.from_iterable(pieces[left:right])
                input_ids = [self.special.cls, *ids, ends_with]
                part_sizes = np.array(sizes[left:right], int)  # none: an empty text's
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
                features.append(Feature(index, columns, positions))
        return features

    def losses(self, logits: Arrays, batch: Arrays) -> Float[Array, "batch length"]:
        """Cross entropy in nats."""
        return of_classes(logits["logits"], jnp.maximum(batch["labels"], 0))

    def weights(self, batch: Arrays) -> Float[Array, "batch length"]:
        """1 for one piece of each word, so all words weigh the same."""
        return (batch["labels"] != _NO_LABEL) * batch["row_weights"][:, None]

    def answers(
        self,
        examples: Sequence[Example],
        features: Sequence[Feature],
        outputs: Sequence[Outputs],
    ) -> list[Tags]:
        """The most probable tag of each word."""
        answers: list[Tags] = [[] for _ in examples]
        for feature, output in zip(features, outputs, strict=True):
            best = self.best(output)[feature.info]
            answers[feature.example] += [self.labels[i] for i in best]
        return answers

    def best(self, output: Outputs) -> Int[np.ndarray, " pieces"]:
        """The number of each piece's tag."""
        return np.argmax(output["logits"], axis=-1)

    def scores(
        self, split: str, examples: Sequence[Example], answers: Sequence[Tags]
    ) -> dict[str, float]:
        """`precision`, `recall`, `f1` of the entities as in conlleval, and `accuracy`
        of the tags, as fractions; for plain tags only the accuracy."""
        del split
        gold = [e.sentence.tags for e in examples if e.sentence.tags is not None]
        if not gold:
            return {}
        accuracy = {"accuracy": scores.tag_accuracy(gold, answers)}
        if not self.in_entities:
            return accuracy
        return scores.entity_scores(gold, answers) | accuracy

    def baseline(self, split: str, examples: Sequence[Example]) -> dict[str, float]:
        """The scores of the split's majority tag, nearly always O, for every word."""
        tags = Counter(t for e in examples for t in e.sentence.tags or ())
        if not tags:
            return {}
        majority = tags.most_common(1)[0][0]
        answers = [[majority] * len(example.sentence.words) for example in examples]
        return self.scores(split, examples, answers)

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[Example],
        answers: Sequence[Tags],
    ) -> None:
        """`<split>.conll`: the file's columns, its tags again if they are not in the
        last one, and the predicted tags, for conlleval (with -d "\\t" where the file
        has tabs)."""
        del examples
        text = conll.with_column(self._files[split], answers)
        write_atomically(folder / f"{split}.conll", text)

    def parse(self, row: dict[str, Any]) -> Example:
        """Takes `{"words": [...]}`, or `{"text": "..."}`, which is split into words as
        the training data was."""
        if ("words" in row) == ("text" in row):
            raise ValueError('either "words" or "text" is required')
        if "words" in row:
            words = row["words"]
            if not isinstance(words, list):
                raise ValueError('"words" must be a list')
            if not all(isinstance(word, str) and word for word in words):
                raise ValueError('"words" must hold strings, none of them empty')
            return Example(conll.Sentence(tuple(words)))
        text = row["text"]
        if not isinstance(text, str):
            raise ValueError('"text" must be a string')
        spans = tuple(self.split_words(text))
        words = tuple(text[start:end] for start, end in spans)
        return Example(conll.Sentence(words), text, spans)

    def result(self, example: Example, answer: Tags) -> dict[str, Any]:
        """`tags`, one per word; for a text, also its `words`; and `entities`, each with
        `type`, `start` and `end` (exclusive): offsets of characters, with the `text`
        between them, or indices of words, with the `words` between them."""
        result: dict[str, Any] = {"tags": answer}
        if example.text is not None:
            result = {"words": list(example.sentence.words), **result}
        if self.in_entities:
            entities = scores.entities(answer)
            result["entities"] = [_place(example, entity) for entity in entities]
        return result

    def _label_ids(
        self, sentence: conll.Sentence, known: Mapping[str, int], split: str
    ) -> list[int]:
        for place, tag in zip(sentence.places, sentence.tags or (), strict=False):
            if tag in known:
                continue
            if split == "train":
                raise UserError(
                    f"{self.config.task.train_file}:{place}: the tag {tag!r} is not in "
                    f"config.task.labels={self.labels}: add it there, or leave "
                    "labels empty"
                )
            what = f"{split}: tags that are not in training, scored as wrong"
            self.notices[what] += 1
        return [known.get(tag, _NO_LABEL) for tag in sentence.tags or ()]

    def _pieces(self, examples: Sequence[Example], split: str) -> list[list[int]]:
        """The ids of every word of all sentences, in order; none is empty."""
        room = self.config.task.max_seq_length - 2
        words = [word for example in examples for word in example.sentence.words]
        unique = list(dict.fromkeys(words))
        space = tokenization.kind_of(self.tokenizer).before_word
        encodings = self.tokenize([f"{space}{word}" for word in unique], offsets=False)
        ids = {word: each.ids for word, each in zip(unique, encodings, strict=True)}
        for word in words:
            if not ids[word]:
                self.notices[f"{split}: words without a piece, [UNK]"] += 1
            if len(ids[word]) > room:
                self.notices[f"{split}: words longer than max_seq_length, cut"] += 1
        return [ids[word][:room] or [self.special.unk] for word in words]

    def _documents(
        self,
        examples: Sequence[Example],
        bounds: Sequence[tuple[int, int]],
        split: str,
    ) -> Sequence[tuple[int, int]]:
        """The range of words, for each sentence, that its context may come from."""
        # The rows of `predict` are unrelated.
        if not self.config.task.document_context or split == "predict":
            return bounds
        documents: dict[int, tuple[int, int]] = {}
        for example, (begin, end) in zip(examples, bounds, strict=True):
            document = example.sentence.document
            documents[document] = (documents.get(document, (begin, end))[0], end)
        return [documents[example.sentence.document] for example in examples]


def _place(example: Example, entity: scores.Entity) -> dict[str, Any]:
    type_, start, end = entity
    if example.text is None:
        words = list(example.sentence.words[start:end])
        return {"type": type_, "start": start, "end": end, "words": words}
    first, last = example.spans[start][0], example.spans[end - 1][1]
    text = example.text[first:last]
    return {"type": type_, "start": first, "end": last, "text": text}
