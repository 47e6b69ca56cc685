"""Fine-tuning, features and left to right by number of training examples.

    python -m experiments.claims.learning_curves --data=aclImdb --init_from=MLM \
        --ltr=LTR --size=base --examples=50,100,200,500,1000 --draws=5 --seeds=2 \
        --epochs=10 --output=runs/learning_curves [--plan] [--config.FIELD=VALUE ...]

MLM and LTR are runs or model folders, the second of task.objective=ltr. Each draw takes
other examples, the smaller sets within the larger. On each set all systems are trained,
the fine-tuned ones with `seeds` restarts in one program. The same command resumes where
it stopped. docs/paper.md explains how to read the files that it writes.
"""

import argparse
import itertools
import json
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Int

import bert_jax
from bert_jax.commands import command_line, plots, report, runner
from bert_jax.commands.intervals import estimate
from bert_jax.commands.report import Figure, Section, Table
from bert_jax.commands.runner import ROOT, Run, digest
from bert_jax.config import configuration
from bert_jax.config.fields import iter_fields
from bert_jax.convert import weights
from bert_jax.data import texts
from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.runtime.storage import write_atomically
from configs.finetune import imdb
from experiments.insight.probes import read_vectors
from experiments.lib.verdicts import Claim, Pair, judge, shown
from experiments.paper.tables import SIZES

CONFIG = ROOT / "configs" / "finetune" / "text.py"
PENALTIES = tuple(10.0**power for power in range(1, -4, -1))
FOLDS = 5
_SET = (
    *("init_from", "seed", "train.seeds", "train.num_epochs", "train.num_steps"),
    *("train.early_stop", "evaluate.splits", "evaluate.checkpoint"),
    *("task.name", "task.labels", "task.train_file", "task.dev_file"),
    *("task.test_file", "task.dev_fraction"),
    *("task.text", "task.text_b", "task.label", "task.kind"),
)
_RECIPE = (
    *("task.max_seq_length", "task.truncation"),
    *("train.batch_size", "optimizer.learning_rate"),
)
FINE, LTR = "fine-tuned", "left to right, fine-tuned"
MEAN, CLS = "features, mean of pieces", "features, [CLS]"
SYSTEMS = (FINE, LTR, MEAN, CLS)
Key: TypeAlias = tuple[str, int, int]  # system, number of examples, draw
# Features: a list of one. Fine-tuning: test_accuracy after each epoch.
Series: TypeAlias = list[dict[str, float]]


class Data(NamedTuple):
    """The reviews.

    Attributes:
      name: Prefix of the files that they are written to: a hash of their content.
      orders: Order of the training examples for each draw. A set is its beginning.
    """

    train: list[Row]
    test: list[Row]
    name: str
    orders: list[np.ndarray]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(texts.sorted_labels({str(text["label"]) for text in self.train}))

    def codes(self, some: Sequence[Row]) -> np.ndarray:
        """Returns each text's class, as a number."""
        return np.array([self.labels.index(str(text["label"])) for text in some])

    def file(self, output: Path, part: str) -> Path:
        return output / "data" / f"{self.name}-{part}.jsonl"

    def write(self, options: argparse.Namespace) -> None:
        """Writes the missing files of those that the runs read."""
        parts = {"train": self.train, "test": self.test}
        for draw, order in enumerate(self.orders):
            for count in options.examples:
                chosen = [self.train[index] for index in order[:count]]
                parts[f"draw{draw}-{count}"] = chosen
        for part, some in parts.items():
            path = self.file(options.output, part)
            if not path.exists():
                rows = [{"text": text["text"], "label": text["label"]} for text in some]
                lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
                write_atomically(path, "".join(lines))


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    options, fields = parse(argv)
    if not options.plan:
        command_line.require("matplotlib", "report", "the plots need matplotlib")
        command_line.require("sklearn", "probes", "the classifiers need scikit-learn")
    data = read(options)
    runs = plan(options, fields, data)

    def said(_: object) -> str:
        found = {key: series(run) for key, run in runs.items()}
        found |= frozen(options, data)
        facts = report.facts("experiments.claims.learning_curves", argv)
        return write_report(options.output, found, facts, options.draws)

    every = list(runs.values())
    return runner.finish(every, options, said, before=lambda: data.write(options))


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Returns the options, and the fields of all fine-tuning runs.

    Raises:
      UserError: An option or field does not exist or is set here, or weights are
        missing, or of the other direction.
    """
    parser = command_line.Parser("experiments.claims.learning_curves", __doc__)
    parser.add_argument("--data", required=True, help="aclImdb, or {train,test}.jsonl")
    parser.add_argument("--init_from", required=True, help="masked LM")
    parser.add_argument("--ltr", default="", help="left to right; empty: left out")
    parser.add_argument("--size", default="base", choices=tuple(SIZES))
    parser.add_argument("--examples", default="50,100,200,500,1000")
    parser.add_argument("--draws", default=5, type=int, help="of the examples")
    parser.add_argument("--seeds", default=2, type=int, help="restarts on each set")
    parser.add_argument("--epochs", default=10.0, type=float)
    parser.add_run_options("runs/learning_curves")
    options, fields = command_line.with_fields(parser, argv, _SET)
    command_line.check_counts(options, "draws", "seeds", "epochs")
    for option, causal in (("init_from", False), ("ltr", True)):
        path = getattr(options, option)
        if path or not causal:
            source = weights.find_source(path)
            if source.shape().get("model.causal", False) != causal:
                kind = "reads both ways" if causal else "is left to right"
                raise UserError(f"--{option}={path}: this model {kind}")
    fields = [*recipe(options.size, fields), *fields]
    configuration.load_config(f"{CONFIG}:recipe={options.size}", fields)
    return options, fields


def recipe(size: str, fields: Sequence[str]) -> list[str]:
    """Returns length, truncation, batch and rate of imdb.py, but for those given."""
    given = {configuration.field_of(text) for text in fields}
    values = dict(iter_fields(imdb.get_config(size)))
    names = [name for name in _RECIPE if name not in given]
    return [f"--config.{name}={values[name]}" for name in names]


def read(options: argparse.Namespace) -> Data:
    """Reads the reviews. `options.examples` become numbers."""
    place = Path(options.data)
    if not place.is_dir():
        raise UserError(f"--data={place}: no such folder")
    parts = {}
    for split in ("train", "test"):
        files = sorted(place.glob(f"{split}.jsonl*"))
        parts[split] = (
            texts.read_texts(str(files[0]))
            if files
            else texts.read_folders(place / split)
        )
    train, test = parts.values()
    options.examples = sizes(options.examples, len(train))
    labels = {text["label"] for text in train}
    if len(labels) < 2:
        raise UserError(f"--data={place}: the training examples have one class only")
    for text in test:
        if text["label"] not in labels:
            name = text["label"]
            raise UserError(f"{text['where']}: label {name!r} is not in training")
    rows = [
        [split, str(text["label"]), text["text"]]
        for split, part in parts.items()
        for text in part
    ]
    given = [text["label"] for text in train]
    orders = [nested(given, draw) for draw in range(options.draws)]
    return Data(train, test, digest(json.dumps(rows)), orders)


def plan(
    options: argparse.Namespace, fields: Sequence[str], data: Data
) -> dict[Key, Run]:
    """Returns the fine-tuning runs, by system, number of examples and draw."""
    runs = {}
    systems = {FINE: options.init_from} | ({LTR: options.ltr} if options.ltr else {})
    points = itertools.product(range(options.draws), options.examples, systems)
    for draw, count, system in points:
        own = (
            f"--config.init_from={systems[system]}",
            f"--config.train.num_epochs={options.epochs!r}",
            f"--config.seed={draw * options.seeds}",
            f"--config.train.seeds={options.seeds}",
            f"--config.task.labels={data.labels!r}",
            *fields,
        )
        part = f"draw{draw}-{count}"
        arguments = (
            f"--config={CONFIG}:recipe={options.size}",
            *own,
            f"--config.task.train_file={data.file(options.output, part)}",
            f"--config.task.dev_file={data.file(options.output, 'test')}",
        )
        name = f"{part}-{digest(data.name, options.size, *own)}"
        place = system.partition(",")[0].replace(" ", "-")
        folder = options.output / place / name
        runs[system, count, draw] = Run(f"{count} examples", folder, arguments)
    return runs


def series(run: Run) -> Series:
    """Reads a run's test accuracy after each epoch: means over its restarts."""
    found: dict[int, list[float]] = {}
    for lines in run.log(needs=("accuracy",)).values():
        for line in lines:  # a restart that stopped early has fewer
            found.setdefault(int(line["step"]), []).append(line["accuracy"])
    return [
        {"step": step, "test_accuracy": float(np.mean(found[step]))}
        for step in sorted(found)
    ]


def frozen(options: argparse.Namespace, data: Data) -> dict[Key, Series]:
    """Fits linear classifiers on the frozen vectors of texts, once, and keeps them.

    Each text has two vectors: [CLS]'s of the last layer, and the mean of its tokens in
    the layer before, as BERT's author advises (docs/insight.md).
    """
    draws = [order.tolist() for order in data.orders]
    name = digest(data.name, options.init_from, repr((options.examples, draws)))
    path = options.output / "features" / f"{name}.json"
    if not path.exists():
        bert = bert_jax.load(options.init_from)
        rows = [text["text"] for text in (*data.train, *data.test)]
        count = len(data.train)
        y, y_test = data.codes(data.train), data.codes(data.test)
        fitted = []
        last = bert.config.num_hidden_layers
        for system, unit, layer in ((CLS, "cls", last), (MEAN, "mean", last - 1)):
            found = read_vectors(bert, unit, rows, (layer,))
            x = np.stack([vector[0, 0] for vector in found])
            for draw, order in enumerate(data.orders):
                for size in options.examples:
                    train = x[order[:size]], y[order[:size]]
                    scores = classified(train, (x[count:], y_test), draw)
                    fitted.append([system, size, draw, scores])
        runner.write_json(path, {"fitted": fitted})
    fits = runner.read_json(path)["fitted"]
    return {(system, size, draw): [scores] for system, size, draw, scores in fits}


def nested(labels: Sequence[Hashable], seed: int) -> Int[np.ndarray, "examples"]:
    """Returns an order of the examples whose every beginning is a stratified draw.

    Each class is shuffled and spread evenly over the order, so the first n examples
    have of each class its fraction of n, rounded up or down. A smaller subset is part
    of a larger one.
    """
    rng = np.random.default_rng(seed)
    place = np.empty(len(labels))
    codes = {label: code for code, label in enumerate(dict.fromkeys(labels))}
    classes = np.array([codes[label] for label in labels])
    for code in range(len(codes)):
        own = rng.permutation(np.flatnonzero(classes == code))
        place[own] = (np.arange(len(own)) + 0.5) / len(own)
    return np.argsort(place, kind="stable")


def sizes(text: str, available: int) -> list[int]:
    """Returns the numbers of examples that --examples names, ascending. `all` is one.

    Raises:
      UserError: One is not a number from 2 to `available`.
    """
    parts = text.replace("all", str(available)).split(",")
    for part in parts:
        if not (part.isdecimal() and 2 <= int(part) <= available):
            raise UserError(
                f"--examples={text}: {part!r} is not a number from 2 to the "
                f"{available:,} training examples that there are, nor 'all'"
            )
    return sorted(set(map(int, parts)))


def classified(
    train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], seed: int
) -> dict[str, float]:
    """Scores a logistic regression whose penalty cross-validation on `train` picks.

    Args:
      train: Vectors [texts, hidden] and classes [texts].
      test: The same for the test set.
      seed: Seed of the folds of the cross-validation.

    Returns:
      Accuracy of both, and the penalty on the mean loss.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.model_selection import GridSearchCV, PredefinedSplit
    from sklearn.preprocessing import StandardScaler

    def score(model: LogisticRegression, x: np.ndarray, y: np.ndarray) -> float:
        return -log_loss(y, model.predict_proba(x), labels=model.classes_)

    scaler, (_, y) = StandardScaler().fit(train[0]), train
    fold = np.empty(len(y), int)
    fold[nested(y.tolist(), seed)] = np.arange(len(y)) % FOLDS
    search = GridSearchCV(
        LogisticRegression(max_iter=1000),
        {"C": [1 / (penalty * len(y)) for penalty in PENALTIES]},
        scoring=score,
        cv=PredefinedSplit(fold),
    )
    model = search.fit(scaler.transform(train[0]), y).best_estimator_
    found = {"penalty": float(1 / (model.C * len(y)))}
    for name, (rows, classes) in (("train", train), ("test", test)):
        found[f"{name}_accuracy"] = float(model.score(scaler.transform(rows), classes))
    return found


def claims(counts: Sequence[int], systems: Sequence[str]) -> list[Claim]:
    """Returns the paper's claims about other tasks, for each number of examples."""
    others = [name for name in (MEAN, CLS) if name in systems]
    found = [
        Claim(
            "Fine-tuning is better than a classifier on frozen vectors",
            "table 7, on named entities with a BiLSTM on top",
            tuple(Pair(FINE, name, f"{n}") for n in counts for name in others),
        )
    ]
    if LTR in systems:
        pairs = tuple(Pair(FINE, LTR, f"{count}") for count in counts)
        text = "Masked LM is better than left to right"
        found.append(Claim(text, "section 5.1, on other tasks", pairs))
    return found


def write_report(
    output: Path, found: Mapping[Key, Series], facts: Mapping[str, Any], draws: int
) -> str:
    """Writes report.md, its plots and results.json, and returns the text."""
    counts = sorted({key[1] for key in found})
    systems = [name for name in SYSTEMS if any(key[0] == name for key in found)]
    columns = [f"{count}" for count in counts]
    scores = {
        (name, f"{count}"): {
            draw: 100 * found[name, count, draw][-1]["test_accuracy"]
            for draw in range(draws)
        }
        for name in systems
        for count in counts
    }
    judged = [judge(claim, scores, columns, draws) for claim in claims(counts, systems)]
    rows = [
        (name, *(shown([*scores[name, n].values()]) for n in columns))
        for name in systems
    ]
    header = ("", *(f"{count:,}" for count in counts))
    lines = {
        name: [(n, *estimate([*scores[name, f"{n}"].values()])) for n in counts]
        for name in systems
    }
    title = "Test accuracy after the last epoch"
    panel = plots.Panel(
        *(title, "training examples", "%", lines), ticks=counts, is_log=True
    )
    sections = [
        Section("", [report.introduction(facts)]),
        Section("Test accuracy in percent after the last epoch", [
            Table(rows, header, "mean over draws, ± half of the 95% interval"),
            Figure("examples", lambda: plots.lines([panel])),
        ]),
        Section("Claims", [verdict.text for verdict in judged]),
    ]  # fmt: skip
    results = {
        **facts,
        "runs": [dict(zip(("system", "examples", "draw"), key, strict=True))
                 | {"epochs": epochs} for key, epochs in found.items()],
        "claims": [verdict.plain() for verdict in judged],
    }  # fmt: skip
    return report.write_report(output, sections, results)


if __name__ == "__main__":
    command_line.start(main)
