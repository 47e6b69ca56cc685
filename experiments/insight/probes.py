"""Which layers know syntax, which meaning: linear probes on every layer's vectors.

    python -m experiments.insight.probes --init_from=WEIGHTS --output=runs/probes \
        [--train=eng.train --dev=eng.testa --tag_column=1] [--sst2=glue_data/SST-2] \
        [--words=10000] [--sentences=2000] [--parts=5]

BERT is frozen. On its vectors of each layer a multinomial logistic regression learns
tags of words (parts of speech, entities), and SST-2's sentiment of sentences from the
mean of their pieces and from [CLS]. Train and dev are dealt out into parts that share
no sentence: each part's probes are trained and scored by themselves, so the interval
over the parts is of both samples. docs/insight.md says more.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bert_jax
from bert_jax.convert import weights
from bert_jax.errors import UserError
from bert_jax.pretrained import Bert
from bert_jax.runtime import terminal
from bert_jax.tasks.glue import data as glue
from bert_jax.tasks.ner import conll
from experiments.insight import probe_fits
from experiments.lib import command_line, report, vectors

_UNITS = {"mean": "SST-2, mean of pieces", "cls": "SST-2, [CLS]"}


class Example(NamedTuple):
    """A text or its words, with the labels of its vectors."""

    row: str | tuple[str, ...]
    words: tuple[str, ...]  # of a sentence with one label: none
    labels: tuple[str, ...]


class Probe(NamedTuple):
    """One kind of vectors and the examples to learn from.

    Attributes:
      unit: of the vectors; see `experiments.lib.vectors`.
      most: training vectors of a part.
      files: of train and of dev, as an error names them.
    """

    title: str
    unit: str
    train: Sequence[Example]
    dev: Sequence[Example]
    most: int
    files: tuple[str, str]


@command_line.printed
def main(argv: Sequence[str]) -> str:
    """Writes OUTPUT/report.md, its plots and results.json; gives the text."""
    options = parse(argv)
    command_line.require("sklearn", "probes", "the probes need scikit-learn")
    command_line.require("matplotlib", "report", "the plots need matplotlib")
    weights.find(options.init_from).check()
    probes = list(read(options))
    bert = bert_jax.load(options.init_from)
    found = {probe.title: finish(bert, probe, options.parts) for probe in probes}
    sections = [
        report.Section(title, probe_fits.parts_of_report(title, x))
        for title, x in found.items()
    ]
    notes = report.Section("", [probe_fits.note(options.parts)])
    command = {**vars(options), "output": str(options.output)}
    results = {"command": command, "probes": found}
    return report.write(options.output, [*sections, notes], results)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options.

    Raises:
      UserError: nothing to probe for, or a number that is too small.
    """
    parser = command_line.Parser("experiments.insight.probes", __doc__)
    parser.add_argument("--init_from", required=True, help="a run, or a folder")
    parser.add_argument("--train", default="", help="words and tags in columns")
    parser.add_argument("--dev", default="")
    parser.add_argument("--token_column", default=0, type=int, help="from 0")
    parser.add_argument("--tag_column", default=-1, type=int, help="-1: the last")
    parser.add_argument("--sst2", default="", help="folder of train.tsv and dev.tsv")
    parser.add_argument("--words", default=10_000, type=int, help="a part trains on")
    parser.add_argument("--sentences", default=2000, type=int, help="likewise, SST-2")
    parser.add_argument("--parts", default=5, type=int)
    parser.add_argument("--output", default="runs/probes", type=Path, help="folder")
    options = parser.parse_args(argv)
    if bool(options.train) != bool(options.dev):
        raise UserError("--train and --dev go together: name both files")
    if not options.train and not options.sst2:
        raise UserError("name --train and --dev, or --sst2, or all three")
    for name, least in (("words", 1), ("sentences", 1), ("parts", 2)):
        if (value := getattr(options, name)) < least:
            raise UserError(f"--{name}={value}: must be at least {least}")
    return options


def read(options: argparse.Namespace) -> Iterator[Probe]:
    """What is probed for.

    Raises:
      UserError: a file is missing or wrong.
    """
    if options.train:
        train, dev = (tagged(path, options) for path in (options.train, options.dev))
        files = options.train, options.dev
        yield Probe("tags of words", "words", train, dev, options.words, files)
    if options.sst2:
        train, dev = (sentiment(options.sst2, split) for split in ("train", "dev"))
        files = f"{options.sst2}/train.tsv", f"{options.sst2}/dev.tsv"
        for unit, title in _UNITS.items():
            yield Probe(title, unit, train, dev, options.sentences, files)


def tagged(path: str, options: argparse.Namespace) -> list[Example]:
    """The sentences of a file of columns."""
    columns = {"token_column": options.token_column, "tag_column": options.tag_column}
    try:
        found = conll.read_columns(path, **columns, labelled=True)
    except UserError as error:  # which names a config's fields
        raise UserError(str(error).replace("config.task.", "--")) from error
    return [
        Example(sentence.words, sentence.words, sentence.tags or ())
        for sentence in found.sentences
    ]


def sentiment(folder: str, split: str) -> list[Example]:
    """SST-2's sentences."""
    labels = glue.TASKS["sst2"].labels
    try:
        found = glue.read("sst2", folder, split, labels, Counter())
    except UserError as error:
        text = str(error).replace("config.task.data_dir", "--sst2")
        raise UserError(text) from error
    return [Example(x.text, (), (str(x.label),)) for x in found or ()]


def finish(bert: Bert, probe: Probe, parts: int) -> dict[str, Any]:
    """Trains and scores the probes of every part.

    Raises:
      UserError: there are too few sentences.
    """
    for file, examples in zip(probe.files, (probe.train, probe.dev), strict=True):
        if len(examples) < parts:
            raise UserError(
                f"{file}: {len(examples)} sentences cannot make --parts={parts}; name "
                "a larger file, or fewer parts"
            )
    dealt = deal(probe.train, parts, probe.most), deal(probe.dev, parts)
    scored = []
    for number, (train, dev) in enumerate(zip(*dealt, strict=True)):
        terminal.say(f"{probe.title}: part {number + 1} of {parts}")
        sets = [labelled(bert, probe.unit, examples) for examples in (train, dev)]
        try:
            scored.append(probe_fits.part(sets[0], sets[1], number))
        except UserError as error:
            raise UserError(f"{probe.files[0]}: {error}") from error
    return probe_fits.summary(scored)


def deal(
    examples: Sequence[Example], parts: int, most: int | None = None
) -> list[list[Example]]:
    """The examples in random order, in parts of like size.

    Args:
      most: labels of a part; the example that would pass it ends the part.
    """
    order = np.random.default_rng(0).permutation(len(examples))
    found = []
    for indices in np.array_split(order, parts):
        ends = np.cumsum([len(examples[index].labels) for index in indices])
        count = len(indices) if most is None else int(np.sum(ends <= most))
        found.append([examples[index] for index in indices[: max(1, count)]])
    return found


def labelled(bert: Bert, unit: str, examples: Sequence[Example]) -> probe_fits.Set:
    """The vectors of some examples from every hidden state, with labels and words; what
    was cut is left out."""
    layers = range(bert.config.num_hidden_layers + 1)
    arrays = vectors.read(bert, unit, [example.row for example in examples], layers)
    pairs = list(zip(examples, arrays, strict=True))
    labels = [label for e, x in pairs for label in e.labels[: len(x)]]
    words = [word for e, x in pairs for word in e.words[: len(x)]]
    return probe_fits.Set(np.concatenate(arrays), labels, words)


if __name__ == "__main__":
    command_line.start(main)
