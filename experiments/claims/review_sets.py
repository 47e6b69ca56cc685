"""The reviews of learning_curves, and the files of its training sets."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bert_jax.data import folders, texts
from bert_jax.data.texts import LabelledText
from bert_jax.errors import UserError
from bert_jax.runtime.storage import write_atomically
from experiments.lib import by_size
from experiments.lib.runs import digest


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
