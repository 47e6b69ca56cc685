"""Fine-tuning, features and left to right by number of training examples and epochs.

    python -m experiments.claims.learning_curves --data=aclImdb --init_from=MLM \
        --ltr=LTR --size=base --examples=50,100,200,500,1000 --draws=5 --seeds=2 \
        --epochs=10 --output=runs/learning_curves [--plan] [--config.FIELD=VALUE ...]

MLM and LTR are runs or model folders, the second of task.objective=ltr. Each draw takes
other examples, the smaller sets within the larger; on each set all systems are trained,
the fine-tuned ones with `seeds` restarts in one program. The same command goes on where
it stopped. docs/paper.md says how to read what it writes.
"""

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import bert_jax
from bert_jax.config import configuration
from bert_jax.convert import weights
from bert_jax.data import folders, texts
from bert_jax.data.texts import LabelledText
from bert_jax.errors import UserError
from bert_jax.runtime.storage import write_atomically
from experiments.claims import both_losses, curves_report, frozen_vectors
from experiments.claims.curves_report import CLS, FINE, LTR, MEAN, Key, Series
from experiments.lib import by_size, command_line, ending, kept, report, runner
from experiments.lib.runner import Run, digest
from experiments.paper.tables import SIZES

CONFIG = Path(both_losses.__file__)
_SET = (
    *("init_from", "seed", "train.seeds", "train.num_epochs", "train.num_steps"),
    *("train.restarts", "train.early_stop", "evaluate.splits", "evaluate.checkpoint"),
    *("task.name", "task.labels", "task.train_file", "task.dev_file"),
    *("task.dev_train_file", "task.test_file", "task.dev_fraction"),
    *("task.text", "task.text_b", "task.label", "task.kind"),
)


class Data(NamedTuple):
    """The reviews.

    Attributes:
      name: of the files that they are written to; a hash of their content.
      orders: of each draw, the training examples' order; a set is its beginning.
    """

    train: list[LabelledText]
    test: list[LabelledText]
    name: str
    orders: list[np.ndarray]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(texts.sorted_labels({str(text.label) for text in self.train}))

    def codes(self, some: Sequence[LabelledText]) -> np.ndarray:
        """Each text's class, as a number."""
        return np.array([self.labels.index(str(text.label)) for text in some])

    def file(self, output: Path, part: str) -> Path:
        return output / "data" / f"{self.name}-{part}.jsonl"

    def write(self, options: argparse.Namespace) -> None:
        """Writes what is missing of the files that the runs read."""
        parts = {"train": self.train, "test": self.test}
        for draw, order in enumerate(self.orders):
            for count in options.examples:
                chosen = [self.train[index] for index in order[:count]]
                parts[f"draw{draw}-{count}"] = chosen
        for part, some in parts.items():
            path = self.file(options.output, part)
            if not path.exists():
                rows = [{"text": text.text, "label": text.label} for text in some]
                lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
                write_atomically(path, "".join(lines))


@ending.command
def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    options, fields = parse(argv)
    if not options.plan:
        command_line.require("matplotlib", "report", "the plots need matplotlib")
    data = read(options)
    runs = plan(options, fields, data)

    def said(_: object) -> str:
        found = {key: series(run, key[1]) for key, run in runs.items()}
        found |= frozen(options, fields, data)
        facts = report.facts("experiments.claims.learning_curves", argv)
        return curves_report.write(options.output, found, facts, options.draws)

    before = lambda: data.write(options)  # noqa: E731
    return runner.finish(list(runs.values()), options, said, before=before)


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the fields of all fine-tuning runs.

    Raises:
      UserError: an option or field that does not exist or that this sets itself;
        weights that are missing, or of the other direction.
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
            weights.check(path)
            if weights.read_shape(path).get("causal", False) != causal:
                kind = "reads both ways" if causal else "is left to right"
                raise UserError(f"--{option}={path}: this model {kind}")
    configuration.load(f"{CONFIG}:size={options.size}", fields)
    return options, fields


def read(options: argparse.Namespace) -> Data:
    """The reviews; `options.examples` become numbers."""
    place = Path(options.data)
    if not place.is_dir():
        raise UserError(f"--data={place}: no such folder")
    columns = texts.Columns("text", "", "label", ",")
    parts = []
    for split in ("train", "test"):
        files = sorted(place.glob(f"{split}.jsonl*"))
        if files:
            kind = "classification"
            parts.append(texts.read_texts(str(files[0]), columns, kind, labelled=True))
        else:
            parts.append(folders.read_folders(place / split))
    train, test = parts
    options.examples = by_size.sizes(options.examples, len(train))
    labels = {text.label for text in train}
    if len(labels) < 2:
        raise UserError(f"--data={place}: the training examples have one class only")
    for text in test:
        if text.label not in labels:
            raise UserError(f"{text.where}: label {text.label!r} is not in training")
    rows = [[split, str(text.label), text.text] for split, part in
            zip(("train", "test"), parts, strict=True) for text in part]  # fmt: skip
    orders = [by_size.nested([text.label for text in train], draw)
              for draw in range(options.draws)]  # fmt: skip
    return Data(train, test, digest(json.dumps(rows)), orders)


def plan(
    options: argparse.Namespace, fields: Sequence[str], data: Data
) -> dict[Key, Run]:
    """The fine-tuning runs, by system, number of examples and draw."""
    runs = {}
    systems = {FINE: options.init_from} | ({LTR: options.ltr} if options.ltr else {})
    for draw in range(options.draws):
        for count in options.examples:
            for system, source in systems.items():
                own = (
                    f"--config.init_from={source}",
                    f"--config.train.num_epochs={options.epochs!r}",
                    f"--config.seed={draw * options.seeds}",
                    f"--config.train.seeds={options.seeds}",
                    f"--config.task.labels={data.labels!r}",
                    *fields,
                )
                part = f"draw{draw}-{count}"
                given = {"train": part, "dev": "test", "dev_train": part}
                files = [f"--config.task.{split}_file={data.file(options.output, name)}"
                         for split, name in given.items()]  # fmt: skip
                start = f"--config={CONFIG}:size={options.size}"
                name = f"{part}-{digest(data.name, options.size, *own)}"
                place = system.partition(",")[0].replace(" ", "-")
                folder = options.output / place / name
                arguments = (start, *own, *files)
                run = Run(f"{count} examples", folder, arguments)
                runs[system, count, draw] = run
    return runs


def series(run: Run, count: int) -> Series:
    """A run's scores after each epoch: means over its restarts."""
    found: dict[int, dict[str, list[float]]] = {}
    for split, name in (("dev", "test"), ("dev_train", "train")):
        for lines in run.log(split, ("accuracy", "cross_entropy")).values():
            for line in lines:
                values = found.setdefault(int(line["step"]), {})
                values.setdefault(f"{name}_accuracy", []).append(line["accuracy"])
                values.setdefault(f"{name}_loss", []).append(line["cross_entropy"])
    size = run.config()["train"]["batch_size"]
    return [
        {"step": step, "epoch": step * size / count}
        | {name: float(np.mean(each)) for name, each in found[step].items()}
        for step in sorted(found)
    ]


def frozen(
    options: argparse.Namespace, fields: Sequence[str], data: Data
) -> Mapping[Key, Series]:
    """The linear classifiers on the frozen vectors; each is fitted once."""
    files = [f"--config.task.{split}_file={data.file(options.output, name)}"
             for split, name in (("train", "train"), ("dev", "test"))]  # fmt: skip
    config = configuration.load(f"{CONFIG}:size={options.size}", [*fields, *files])
    config.model.update(weights.read_shape(options.init_from))
    config.task.labels = data.labels
    ending.compute()
    bert = bert_jax.load(options.init_from)
    task = both_losses.TextWithLosses(config, bert.tokenizer)
    place = options.output / "vectors"
    train, test = (
        frozen_vectors.vectors(bert, task, split, place) for split in ("train", "dev")
    )
    y, y_test = data.codes(data.train), data.codes(data.test)
    of_vectors = (hashlib.sha256(each.tobytes()).hexdigest() for each in (train, test))
    name = digest(data.name, *of_vectors)
    found: dict[Key, Series] = {}
    for draw, order in enumerate(data.orders):
        for count in options.examples:
            for which, system in enumerate((CLS, MEAN)):
                place = options.output / "features" / name
                path = place / f"{('cls', 'mean')[which]}-draw{draw}-{count}.json"
                if not path.exists():
                    some = order[:count]
                    fitted = frozen_vectors.classified(
                        (train[which][some], y[some]),
                        (test[which], y_test),
                        len(data.labels),
                        draw,
                    )
                    kept.write(path, fitted)
                found[system, count, draw] = [kept.read(path)]
    return found


if __name__ == "__main__":
    ending.start(main)
