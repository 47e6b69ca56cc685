"""The Python API: `bert_jax.load`, `make_config` and `fit`."""

import dataclasses
import hashlib
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from bert_jax import family, main, modes
from bert_jax.config import configuration, files
from bert_jax.config.fields import copy_mutable
from bert_jax.convert import sentence_transformers, weights
from bert_jax.data import tables
from bert_jax.errors import Interrupted, UserError
from bert_jax.pretrained import Bert, load
from bert_jax.runtime import processes, storage

_FIELDS = "fields"  # that `make_config` has set
_OF_VECTORS = {f"task.{name}" for name in sentence_transformers.FIELDS}


@dataclasses.dataclass(frozen=True)
class Trained:
    """A finished run.

    Attributes:
      workdir: Its work directory.
      step: Step whose weights are the result (`config.evaluate.checkpoint`).
      scores: Scores (name -> value) of each split that has labels.
      model: The model as `bert_jax.load` opens it. None for a family that Hugging
        Face does not have.
    """

    workdir: str
    step: int
    scores: Mapping[str, dict[str, float]]
    model: Bert | None = dataclasses.field(repr=False)


def make_config(
    name: str, fields: Mapping[str, Any] | None = None, **arguments: Any
) -> ConfigDict:
    """Makes the config of `--config=configs/NAME.py:ARGUMENTS --config.FIELD=VALUE`.

    Args:
      name: A file in configs/, such as "base" or "finetune/text", or a path.
      fields: Values by name, such as {"task.train_file": "train.csv"}.
      arguments: Arguments of the file, such as recipe="tiny".

    Raises:
      UserError: There is no such file, field or argument, or a value is wrong.
    """
    main.set_up_logging()
    text = ",".join(f"{key}={value}" for key, value in arguments.items())
    join = "," if ":" in name else ":"
    spec = f"{name}{join}{text}" if text else name
    fields = fields or {}
    config = configuration.override_and_check(files.load_file(spec), spec, fields)
    object.__setattr__(config, _FIELDS, fields)  # for `fit`
    return config


def fit(
    config: ConfigDict, workdir: str | Path, train: Any = None, dev: Any = None
) -> Trained:
    """Trains, as `--mode=train --workdir=DIR` does: starts, resumes, or only reports.

    With `init_from` the model has the sizes of these weights, whatever the config has.
    Ctrl-C, or Jupyter's button to interrupt, saves the step it stopped at. The same
    call resumes from there. In another thread than the main one it handles no signals.

    Args:
      train: Rows in place of `config.task.train_file`: a list of dicts, a data frame of
        pandas or polars, or a table of Arrow. They are saved in the work directory, as
        `data.tables.plain_value` has their values.
      dev: The same for `config.task.dev_file`.

    Returns:
      The scores and the model.

    Raises:
      UserError: A problem that the user can fix.
      TypeError, ValueError: Rows are wrong. Names the row and the field.
      KeyboardInterrupt, bert_jax.errors.Interrupted: On Ctrl-C, on another signal.
    """
    if config.train.seeds > 1:
        raise UserError(
            f"config.train.seeds={config.train.seeds}: from Python one seed at a time; "
            "several: python -m bert_jax.main"
        )
    root = storage.absolute_path(storage.storage_path(workdir))
    workdir = str(root)
    main.set_up_logging()
    # Weights would decide these, even if the value set is the default.
    fields, copy = {}, copy_mutable(config)
    for name, value in getattr(config, _FIELDS, {}).items():
        if name in _OF_VECTORS:
            before, now = configuration.set_field(copy, name, value)
            if before == now:  # the config still has it
                fields[name] = value
    config = copy_mutable(config)
    for split, rows in (("train", train), ("dev", dev)):
        if rows is not None:
            folder = Path(workdir, "rows")
            config.task[f"{split}_file"] = _save_rows(folder, split, rows)
    config = configuration.override_and_check(config)
    try:
        processes.connect(trains=True)
        step = modes.train(config, workdir, fields)
    except Interrupted as interrupted:
        if interrupted.signal_number == signal.SIGINT:
            raise KeyboardInterrupt("the same call goes on from here") from None
        raise
    scores = weights.read_scores(root, step, config.evaluate.splits)
    has_model = bool(family.family_of(config).model_type)
    model = load(workdir) if has_model else None
    return Trained(workdir, step, scores, model)


def _save_rows(folder: Path, split: str, rows: Any) -> str:
    """Writes rows as JSON lines, and returns the path, which other rows do not have.

    Raises:
      TypeError, ValueError: See `tables.python_rows` and `tables.json_lines`.
    """
    text = "".join(tables.json_lines(tables.python_rows(rows)))
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = folder / f"{split}-{digest}.jsonl"
    storage.write_atomically(path, text)
    return str(path)
