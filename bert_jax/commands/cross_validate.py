"""Trains and scores on every part of a table in turn, and keeps all predictions.

    python -m bert_jax cross-validate reviews.csv runs/folds --folds=5 \
        init_from=mini recipe=tiny task.max_seq_length=64

The table has the columns that configs/finetune/text.py reads. FIELD=VALUE sets a field
of the config, and recipe=NAME its argument. The classes are dealt out evenly, and equal
texts to one part, or with task.group=COLUMN equal values of that column. `out_of_fold.
jsonl` in `runs/folds/5_folds` has each row with the prediction of the run that has not
seen it. Where something is chosen on dev (task.calibration, evaluate.checkpoint=best,
train.early_stop), dev is the next part. The same command resumes.
"""

import argparse
import hashlib
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from bert_jax import api
from bert_jax.commands import command_line
from bert_jax.data import texts
from bert_jax.data.tables import Row
from bert_jax.errors import UserError

_COLUMNS = ("text", "text_b", "label", "weight")  # fields of config.task


def deal(rows: Sequence[Row], folds: int) -> list[int]:
    """Returns the part of each row: by class in turn, in the order of the texts' hash.

    Rows with the same `texts.group_name` are in the same part.
    """
    parts: dict[str, int] = {}
    sizes: dict[str, list[int]] = defaultdict(lambda: [0] * folds)
    total = [0] * folds

    def order(row: Row) -> bytes:
        return hashlib.sha256(texts.group_name(row).encode()).digest()

    for row in sorted(rows, key=order):
        # Numbers are one class.
        count = sizes["" if isinstance(row["label"], float) else str(row["label"])]
        least = min(range(folds), key=lambda fold: (count[fold], total[fold]))
        part = parts.setdefault(texts.group_name(row), least)
        count[part] += 1
        total[part] += 1
    return [parts[texts.group_name(row)] for row in rows]


def split_rows(
    rows: Sequence[Row], parts: Sequence[int], fold: int, next_fold: int | None
) -> tuple[str, dict[str, list[Row]]]:
    """Returns the split that scores a part, and the rows of each split.

    Args:
      parts: Result of `deal`.
      fold: The part to score.
      next_fold: The part on which something is chosen. None means that nothing is.
    """
    scored = "dev" if next_fold is None else "test"
    split_of = {next_fold: "dev", fold: scored}
    splits: dict[str, list[Row]] = defaultdict(list)
    for row, part in zip(rows, parts, strict=True):
        splits[split_of.get(part, "train")].append(row)
    return scored, splits


def write(path: Path, rows: Sequence[Row]) -> str:
    """Writes rows as JSON lines and returns the path."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    parser = command_line.Parser("bert_jax cross-validate", __doc__)
    parser.add_argument("table", help="a file, or a data set by name")
    parser.add_argument("output", type=Path, help="a folder")
    parser.add_argument("fields", nargs="*", help="FIELD=VALUE")
    parser.add_argument("--folds", type=int, default=5, help="parts of the table")
    options = parser.parse_intermixed_args(argv)
    if wrong := [text for text in options.fields if "=" not in text]:
        raise UserError(f"{wrong[0]}: write FIELD=VALUE")
    run(options, dict(text.split("=", 1) for text in options.fields))
    return 0


def read_rows(
    options: argparse.Namespace, config: ConfigDict, group: str
) -> tuple[list[Row], bool]:
    """Reads the table.

    Args:
      group: Column whose equal values stay in one part. Empty means equal texts.

    Returns:
      The rows, and whether another part is needed to choose something on.

    Raises:
      UserError: An option, a field or the table is wrong, or has too few texts.
    """
    task = config.task
    if config.train.seeds > 1 or task.dev_fraction:
        raise UserError("train.seeds and task.dev_fraction: leave them out")
    rows = texts.read_texts(
        options.table,
        task.kind,
        separator=task.label_separator,
        form=task.format,
        group=group,
        **{name: task[name] for name in _COLUMNS},
    )
    chooses = (
        task.calibration != "none"
        or config.train.early_stop
        or config.evaluate.checkpoint == "best"
    )
    least = 3 if chooses else 2
    if not least <= options.folds <= len({*map(texts.group_name, rows)}):
        raise UserError(
            f"--folds={options.folds}: must be from {least} to the number of texts"
        )
    return rows, bool(chooses)


def run(options: argparse.Namespace, given: dict[str, Any]) -> None:
    """Trains on the parts in turn, and prints the scores.

    Args:
      given: Values by field, and arguments of the config file.

    Raises:
      UserError: See `read_rows`. Also, the table has one class only.
    """
    arguments = {k: given.pop(k) for k in ("recipe", "model") if k in given}
    group = given.pop("task.group", "")
    config = api.make_config("finetune/text", given, **arguments)
    task = config.task
    rows, chooses = read_rows(options, config, group)
    found = {name for row in rows for name in texts.label_names(row["label"])}
    if task.kind != "regression" and not (task.labels or task.label_names):
        if len(found) < 2:
            raise UserError(f"{options.table}: has one class only")
        # A part's training rows may lack a rare class.
        given["task.labels"] = tuple(texts.sorted_labels(found))
    output = options.output / f"{options.folds}_folds"
    output.mkdir(parents=True, exist_ok=True)
    names = [name for name in _COLUMNS if task[name]]
    given |= {"task.format": "", **{f"task.{name}": name for name in names}}
    kept = [{name: row[name] for name in names} for row in rows]
    parts = deal(rows, options.folds)
    scores: dict[str, list[float]] = defaultdict(list)
    predicted: list[Row] = [{}] * len(rows)
    for fold in range(options.folds):
        next_fold = (fold + 1) % options.folds if chooses else None
        scored, splits = split_rows(kept, parts, fold, next_fold)
        files = {
            f"task.{split}_file": write(output / f"{split}_{fold}.jsonl", some)
            for split, some in splits.items()
        }
        folder = output / f"fold_{fold}"
        config = api.make_config("finetune/text", {**given, **files}, **arguments)
        for name, value in api.fit(config, folder).scores[scored].items():
            scores[name].append(value)
        answers = (folder / "predictions" / f"{scored}.jsonl").read_text("utf-8")
        held = [index for index, part in enumerate(parts) if part == fold]
        for index, line in zip(held, answers.splitlines(), strict=True):
            predicted[index] = {**json.loads(line), "index": index, "fold": fold}
    write(output / "out_of_fold.jsonl", predicted)
    for name, values in scores.items():
        print(
            f"{name}: {statistics.fmean(values):.4f} +- {statistics.stdev(values):.4f} "
            f"over {options.folds} parts"
        )
