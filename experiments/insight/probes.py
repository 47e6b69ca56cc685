"""Linear probes on every layer's vectors: which layers know syntax, which meaning.

    python -m experiments.insight.probes --init_from=WEIGHTS --output=runs/probes \
        [--train=eng.train --dev=eng.testa --tag_column=1] [--sst2=glue_data/SST-2] \
        [--words=10000] [--sentences=2000] [--parts=5]

BERT is frozen. On its vectors of each layer a multinomial logistic regression learns
tags of words (parts of speech, entities), and SST-2's sentiment of sentences from the
mean of their tokens and from [CLS]. Train and dev are dealt out into parts that share
no sentence. Each part's probes are trained and scored by themselves, so the interval
over the parts is of both samples. See docs/insight.md.
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

import bert_jax
from bert_jax.commands import command_line, plots, report
from bert_jax.commands.intervals import estimate, number
from bert_jax.commands.report import Figure, Table
from bert_jax.convert import weights
from bert_jax.errors import UserError, escape_controls
from bert_jax.pretrained import Bert
from bert_jax.runtime import terminal
from bert_jax.tasks.glue import data as glue
from bert_jax.tasks.ner import data as ner
from experiments.lib.verdicts import shown

_UNITS = {"mean": "SST-2, mean of pieces", "cls": "SST-2, [CLS]"}
# scikit-learn's default strength of the L2 penalty: the same for all layers, not tuned.
SETTINGS = {"C": 1.0, "max_iter": 1000}
# A column that varies less than this fraction of the vectors' size is constant: the
# variation is rounding, as in layer 0's [CLS].
_CONSTANT = 1e-4
USUAL_TAG = "word's most frequent tag"
_WINDOW = 256  # rows whose padded batches are in memory together


class Example(NamedTuple):
    """A text or its words, with the labels of its vectors."""

    row: str | tuple[str, ...]
    words: tuple[str, ...]  # none for a sentence with one label
    labels: tuple[str, ...]


class Set(NamedTuple):
    """Vectors with their labels, and the words (none for whole sentences)."""

    vectors: Float[np.ndarray, "vectors states hidden"]
    labels: Sequence[str]
    words: Sequence[str]


class Probe(NamedTuple):
    """One kind of vectors and the examples to learn from.

    Attributes:
      unit: Unit of the vectors. See `read_vectors`.
      most: Maximum number of training vectors in a part.
      files: Files of train and of dev, as an error names them.
    """

    title: str
    unit: str
    train: Sequence[Example]
    dev: Sequence[Example]
    most: int
    files: tuple[str, str]


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    options = parse(argv)
    command_line.require("sklearn", "probes", "the probes need scikit-learn")
    command_line.require("matplotlib", "report", "the plots need matplotlib")
    command_line.compute()
    weights.find_source(options.init_from)
    probes = read(options)
    bert = bert_jax.load(options.init_from)
    found = {probe.title: finish(bert, probe, options.parts) for probe in probes}
    sections = [
        report.Section(title, parts_of_report(title, x)) for title, x in found.items()
    ]
    note = (
        f"percent of dev, mean ± 95% interval over {options.parts} parts that share no "
        "sentence\ncontrol: a random tag for each word; selectivity: accuracy less "
        "control\ngain: over layer 0, the embeddings, part by part"
    )
    notes = report.Section("", [note])
    command = {**vars(options), "output": str(options.output)}
    results = {"command": command, "probes": found}
    print(
        escape_controls(
            report.write_report(options.output, [*sections, notes], results)
        )
    )
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Reads the options.

    Raises:
      UserError: There is nothing to probe for, or a number is too small.
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


def read(options: argparse.Namespace) -> list[Probe]:
    """Reads the files of the probes.

    Raises:
      UserError: A file is missing or wrong.
    """
    probes = []
    try:
        if options.train:
            files = options.train, options.dev
            train, dev = (_tagged(path, options) for path in files)
            given = (train, dev, options.words, files)
            probes.append(Probe("tags of words", "words", *given))
        if options.sst2:
            train, dev = (_sentences(options.sst2, x) for x in ("train", "dev"))
            files = f"{options.sst2}/train.tsv", f"{options.sst2}/dev.tsv"
            given = (train, dev, options.sentences, files)
            probes += [Probe(title, unit, *given) for unit, title in _UNITS.items()]
    except UserError as error:  # which names a config's fields
        text = str(error).replace("config.task.data_dir", "--sst2")
        raise UserError(text.replace("config.task.", "--")) from error
    return probes


def _tagged(path: str, options: argparse.Namespace) -> list[Example]:
    columns = {"token_column": options.token_column, "tag_column": options.tag_column}
    rows = ner.read_sentences(path, **columns, labelled=True)
    return [Example(row["words"], row["words"], row["tags"] or ()) for row in rows]


def _sentences(folder: str, split: str) -> list[Example]:
    rows = glue.read_split("sst2", folder, split, Counter()) or ()
    return [Example(row["text"], (), (row["label"],)) for row in rows]


def finish(bert: Bert, probe: Probe, parts: int) -> dict[str, Any]:
    """Trains and scores the probes of every part.

    Raises:
      UserError: There are too few sentences, or all labels are equal.
    """
    for file, examples in zip(probe.files, (probe.train, probe.dev), strict=True):
        if len(examples) < parts:
            raise UserError(
                f"{file}: {len(examples)} sentences cannot make --parts={parts}; name "
                "a larger file, or fewer parts"
            )
    dealt = deal(probe.train, parts, probe.most), deal(probe.dev, parts)
    scored = []
    for seed, (train, dev) in enumerate(zip(*dealt, strict=True)):
        terminal.print_line(f"{probe.title}: part {seed + 1} of {parts}")
        sets = [labelled(bert, probe.unit, examples) for examples in (train, dev)]
        scored.append(fit_part(sets[0], sets[1], seed))
    return summary(scored)


def deal(
    examples: Sequence[Example], parts: int, most: int | None = None
) -> list[list[Example]]:
    """Deals out the examples in random order, in parts of like size.

    Args:
      most: Number of labels in a part. The example that would pass it ends the part.
    """
    order = np.random.default_rng(0).permutation(len(examples))
    found = []
    for indices in np.array_split(order, parts):
        ends = np.cumsum([len(examples[index].labels) for index in indices])
        count = len(indices) if most is None else int(np.sum(ends <= most))
        found.append([examples[index] for index in indices[: max(1, count)]])
    return found


def labelled(bert: Bert, unit: str, examples: Sequence[Example]) -> Set:
    """Returns vectors of every hidden state of examples, with labels and words.

    Words that were cut are left out.
    """
    layers = range(bert.config.num_hidden_layers + 1)
    arrays = read_vectors(bert, unit, [example.row for example in examples], layers)
    pairs = list(zip(examples, arrays, strict=True))
    labels = [label for e, x in pairs for label in e.labels[: len(x)]]
    words = [word for e, x in pairs for word in e.words[: len(x)]]
    return Set(np.concatenate(arrays), labels, words)


def fit_part(train: Set, dev: Set, seed: int) -> dict[str, Any]:
    """Computes accuracies on one part's dev set. Warns if one has not converged.

    Args:
      seed: Seed of the control task.

    Returns:
      `accuracy` and, for words, `control`, each by layer. `baselines` has the majority
      label's and, for words, that of each word's most frequent tag. `vectors` has their
      numbers in train and dev.

    Raises:
      UserError: All training labels are equal.
    """
    from sklearn.linear_model import LogisticRegression

    tasks = {"accuracy": (train.labels, dev.labels)}
    if train.words:
        tasks["control"] = control(train, dev, seed)
    for labels, _ in tasks.values():
        if len(set(labels)) < 2:
            raise UserError(
                f"a part's training sentences have the label {labels[0]!r} only: name "
                "a larger file, or fewer --parts"
            )
    found: dict[str, Any] = {name: [] for name in tasks}
    for layer in range(train.vectors.shape[1]):
        x, x_dev = scaled(train.vectors[:, layer], dev.vectors[:, layer])
        for name, (labels, labels_dev) in tasks.items():
            model = LogisticRegression(**SETTINGS).fit(x, labels)
            found[name].append(float(model.score(x_dev, labels_dev)))
    found["baselines"] = baselines(train, dev)
    found["vectors"] = [len(train.labels), len(dev.labels)]
    return found


def control(train: Set, dev: Set, seed: int) -> tuple[list[str], list[str]]:
    """Draws the control task's labels: one for each word, as often as the tags are."""
    rng = np.random.default_rng(seed)
    words = sorted({*train.words, *dev.words})
    tags = sorted(train.labels)
    drawn = [tags[index] for index in rng.integers(len(tags), size=len(words))]
    given = dict(zip(words, drawn, strict=True))
    train_labels, dev_labels = ([given[w] for w in x.words] for x in (train, dev))
    return train_labels, dev_labels


def scaled(
    train: Float[np.ndarray, "train hidden"], dev: Float[np.ndarray, "dev hidden"]
) -> tuple[Float[np.ndarray, "train hidden"], Float[np.ndarray, "dev hidden"]]:
    """Scales both so that train's mean and deviation are 0 and 1, by column."""
    mean, spread = train.mean(axis=0), train.std(axis=0)
    size = np.sqrt(np.mean(np.square(train)))
    factor = np.where(spread > _CONSTANT * size, 1 / np.maximum(spread, 1e-30), 0)
    return (train - mean) * factor, (dev - mean) * factor


def baselines(train: Set, dev: Set) -> dict[str, float]:
    """Returns the accuracy of the most frequent label, and of each word's."""
    (usual, _), *_ = Counter(train.labels).most_common(1)
    found = {"majority": float(np.mean([label == usual for label in dev.labels]))}
    if train.words:
        counts: dict[str, Counter[str]] = {}
        for word, label in zip(train.words, train.labels, strict=True):
            counts.setdefault(word, Counter())[label] += 1
        tags = {word: count.most_common(1)[0][0] for word, count in counts.items()}
        pairs = zip(dev.words, dev.labels, strict=True)
        right = [tags.get(word, usual) == label for word, label in pairs]
        found[USUAL_TAG] = float(np.mean(right))
    return found


def summary(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Computes means over the parts with 95% intervals (Student's t), by layer.

    Returns:
      `layers`: for each its `accuracy`, `gain` over layer 0 and, for words, `control`
      and `selectivity` (differences are taken part by part), each with `mean`, `reach`
      (half the interval) and `parts`. Also `baselines`, and `vectors`, summed.
    """
    scores = np.array([part["accuracy"] for part in parts])  # [parts, layers]
    values = {"accuracy": scores, "gain": scores - scores[:, :1]}
    if "control" in parts[0]:
        values["control"] = np.array([part["control"] for part in parts])
        values["selectivity"] = scores - values["control"]
    return {
        "layers": [
            {name: _spread(found[:, layer].tolist()) for name, found in values.items()}
            for layer in range(scores.shape[1])
        ],
        "baselines": {
            name: _spread([part["baselines"][name] for part in parts])
            for name in parts[0]["baselines"]
        },
        "vectors": [sum(part["vectors"][i] for part in parts) for i in (0, 1)],
    }


def _spread(values: list[float]) -> dict[str, Any]:
    mean, reach = estimate(values)
    return {"mean": mean, "reach": number(reach), "parts": values}


def parts_of_report(title: str, found: Mapping[str, Any]) -> list[str | Table | Figure]:
    """Formats a probe's numbers in percent, and their plot."""
    names = [name for name in ("accuracy", "control", "selectivity", "gain")
             if name in found["layers"][0]]  # fmt: skip
    rows = [
        (f"layer {index}", *(_percent(layer[name]) for name in names))
        for index, layer in enumerate(found["layers"])
    ]
    blank = [""] * (len(names) - 1)
    rows += [(name, _percent(x), *blank) for name, x in found["baselines"].items()]
    train, dev = found["vectors"]
    name = "".join(c if c.isalnum() else "_" for c in title)
    return [
        f"{train:,} for training, {dev:,} in dev",
        Table(rows, ("vectors", *names)),
        Figure(name, lambda: plots.lines([_panel(title, found)])),
    ]


def _percent(score: Mapping[str, Any]) -> str:
    return shown([100 * part for part in score["parts"]])


def _panel(title: str, found: Mapping[str, Any]) -> plots.Panel:
    """Plots a probe's accuracies, controls and baselines by layer, in percent."""
    layers = found["layers"]
    lines = {
        name: [
            (at, 100 * layer[name]["mean"], 100 * (layer[name]["reach"] or 0))
            for at, layer in enumerate(layers)
        ]
        for name in ("accuracy", "control")
        if name in layers[0]
    }
    levels = {name: 100 * x["mean"] for name, x in found["baselines"].items()}
    ticks = range(len(layers))
    x = "layer (0: the embeddings)"
    return plots.Panel(title, x, "percent", lines, levels, ticks=ticks)


def read_vectors(
    bert: Bert, unit: str, rows: Sequence[str | Sequence[str]], layers: Sequence[int]
) -> list[Float[np.ndarray, "vectors states hidden"]]:
    """Returns the vectors of each row.

    Warns if rows were cut at the model's positions: they have fewer vectors than words.

    Args:
      unit: Unit as in `config.predict.vectors`: pieces, words, words_mean, cls or mean.
      rows: Texts, or lists of words.
      layers: Layers as in `config.predict.layers`.
    """
    shape, found = (-1, len(layers), bert.config.hidden_size), []
    for begin in range(0, len(rows), _WINDOW):
        window = rows[begin : begin + _WINDOW]
        some = [row if isinstance(row, str) else list(row) for row in window]
        answers = bert._extract_rows(some, layers=tuple(layers), vectors=unit)
        # Copies: a view would keep its whole padded batch.
        found += [np.array(answer["vectors"]).reshape(shape) for answer in answers]
    return found


if __name__ == "__main__":
    command_line.start(main)
