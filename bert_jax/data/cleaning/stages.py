"""The work of one core: judges documents, each by itself, in the order of the stages.

A document is judged by its paragraphs and by what they leave of it. Duplicates need all
documents; for them this gives a fingerprint of what is left (duplicates.py).
"""

import functools
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt64

from bert_jax.data import vocabulary
from bert_jax.data.cleaning import duplicates, evaluation, grams, languages, paragraphs
from bert_jax.data.cleaning.settings import DUPLICATES, PARAGRAPHS, Settings
from bert_jax.data.corpus import Document

EXAMPLES = 3  # of each stage, for the report


class Job(NamedTuple):
    """What all documents share."""

    settings: Settings
    sequences: Path | None  # a file of `evaluation.sequences`


class Documents(NamedTuple):
    """Some documents in a row."""

    first: int  # the number of the first one, from 0
    documents: list[Document]


class Example(NamedTuple):
    """Something that a stage took."""

    rank: float  # by hash: the lowest are shown, from all over the corpus
    document: int
    text: str
    of: str = ""  # the duplicate that stays


class Judged(NamedTuple):
    """What the stages leave of some documents."""

    # Of each document: "" (all is kept), a stage (which took it whole), or the numbers
    # of the paragraphs that stages took: "headings:0,4 overlap:7".
    verdicts: list[str]
    # By (stage, documents, paragraphs or bytes); read: before all; kept: after.
    counts: Counter[tuple[str, str]]
    examples: dict[str, list[Example]]
    prints: bytes  # `duplicates.PRINT` of each document kept so far, if asked for


def judge(job: Job, batch: Documents) -> Judged:
    """Judges a batch of documents."""
    judged = Judged([], Counter(), {}, b"")
    prints = []
    for number, document in enumerate(batch.documents, batch.first):
        judged.counts["read", "documents"] += 1
        judged.counts["read", "bytes"] += len(document.text.encode())
        one = _Document(job, number, document)
        judged.verdicts.append(one.judge())
        judged.counts["kept", "documents"] += bool(one.text)
        judged.counts["kept", "bytes"] += len(one.text.encode())
        judged.counts.update(one.counts)
        for stage, example in one.examples:
            keep(judged.examples, stage, example)
        if one.text and set(DUPLICATES) & set(job.settings.stages):
            near = "near_duplicates" in job.settings.stages
            fingerprint = duplicates.fingerprint(number, one.text, one.words(), near)
            prints.append(fingerprint.tobytes())
    return judged._replace(prints=b"".join(prints))


def keep(examples: dict[str, list[Example]], stage: str, example: Example) -> None:
    """Adds an example, as long as it is among the EXAMPLES lowest of its stage."""
    lowest = sorted([*examples.get(stage, ()), example])
    examples[stage] = lowest[:EXAMPLES]


def rank(stage: str, number: int) -> float:
    """Of an example from document `number`."""
    return vocabulary.keyed_hash(0, stage, number)


class _Document:
    """A document while stages take parts of it."""

    def __init__(self, job: Job, number: int, document: Document):
        self._job, self._number, self._document = job, number, document
        self._parts = paragraphs.split(document)
        self._left = list(range(len(self._parts)))
        self._words: dict[int, UInt64[np.ndarray, " words"]] = {}
        self.text = document.text  # what is left; "" if nothing
        self.counts: Counter[tuple[str, str]] = Counter()
        self.examples: list[tuple[str, Example]] = []

    def judge(self) -> str:
        """Runs the stages; returns the verdict."""
        taken = []
        for stage in self._job.settings.stages:
            if stage in PARAGRAPHS:
                if numbers := self._judge_paragraphs(stage):
                    taken.append(f"{stage}:{','.join(map(str, numbers))}")
            elif stage not in DUPLICATES and self._is_refused(stage):
                self._count(stage, self.text, documents=1)
                self.text = ""
                return stage
            if not self.text:
                break
        return " ".join(taken)

    def words(self) -> UInt64[np.ndarray, " words"]:
        """The words of what is left."""
        return np.concatenate([np.zeros(0, np.uint64), *map(self._of, self._left)])

    def _of(self, number: int) -> UInt64[np.ndarray, " words"]:
        if number not in self._words:
            self._words[number] = grams.words(self._parts[number])
        return self._words[number]

    def _judge_paragraphs(self, stage: str) -> list[int]:
        """Takes paragraphs; returns their numbers."""
        marked = self._shared() if stage == "overlap" else self._marked(stage)
        if not marked:
            return []
        self._left = [number for number in self._left if number not in set(marked)]
        parts = [self._parts[number] for number in self._left]
        text = paragraphs.joined(self._document, parts).text
        self.text = text if any(map(str.isalnum, text)) else ""
        lost = "\n".join(self._parts[number] for number in marked)
        self._count(stage, lost, paragraphs=len(marked), documents=int(not self.text))
        return marked

    def _marked(self, stage: str) -> list[int]:
        marks = paragraphs.RULES[stage]([self._parts[number] for number in self._left])
        return [number for number, mark in zip(self._left, marks, strict=True) if mark]

    def _shared(self) -> list[int]:
        """The paragraphs with a word of a sequence that an evaluation file has."""
        size = self._job.settings.overlap_words
        known = _sequences(self._job.sequences)
        left, shared = self._left, set[int]()
        while True:  # what stood apart may stand together now
            owners = np.repeat(left, [len(self._of(number)) for number in left])
            words = np.concatenate([np.zeros(0, np.uint64), *map(self._of, left)])
            hits = set(owners[evaluation.holds(words, known, size)].tolist())
            if not hits:
                return sorted(shared)
            shared |= hits
            left = [number for number in left if number not in hits]

    def _is_refused(self, stage: str) -> bool:
        settings = self._job.settings
        if stage == "min_length":
            return len(self.words()) < settings.min_words
        language, share = languages.identify(self.text)
        return language != settings.language or share < settings.language_share

    def _count(self, stage: str, lost: str, **amounts: int) -> None:
        self.counts[stage, "bytes"] += len(lost.encode())
        for name, amount in amounts.items():
            self.counts[stage, name] += amount
        text = duplicates.excerpt(lost)
        number = self._number
        self.examples.append((stage, Example(rank(stage, number), number, text)))


@functools.cache
def _sequences(path: Path) -> UInt64[np.ndarray, " sequences"]:
    return np.load(path, mmap_mode="r")
