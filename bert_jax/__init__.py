"""BERT in JAX and Flax, from raw text to exported weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ml_collections import ConfigDict

    from bert_jax.in_python import Trained
    from bert_jax.pretrained import Bert

# Each imports what it needs on use: data preparation needs none of it, nor JAX.


def load(path: str | Path) -> "Bert":
    """Opens a model: a work directory, a Hugging Face folder, or one of Google's.

    Raises:
      UserError: there is none, or it is damaged.
    """
    from bert_jax import pretrained

    return pretrained.load(path)


def make_config(
    name: str, fields: Mapping[str, Any] | None = None, **arguments: Any
) -> "ConfigDict":
    """A config, as `--config=configs/NAME.py:ARGUMENTS --config.FIELD=VALUE` makes it.

    Args:
      name: a file in configs/, such as "base" or "finetune/text"; or a path.
      fields: values by name, such as {"task.train_file": "train.csv"}.
      arguments: of the file, such as size="tiny".

    Raises:
      UserError: there is no such file, field or argument, or a value is wrong.
    """
    from bert_jax import in_python

    return in_python.make_config(name, fields or {}, arguments)


def fit(config: "ConfigDict", workdir: str | Path) -> "Trained":
    """Trains, as `--mode=train --workdir=DIR` does: starts, resumes, or only reports.

    With `init_from` the model has the sizes of these weights, whatever the config has.
    Ctrl-C, or Jupyter's button to interrupt, saves the step it stopped at; the same
    call goes on from there.

    Returns:
      The scores and the model.

    Raises:
      UserError: what the user can fix.
      KeyboardInterrupt, bert_jax.errors.Interrupted: by Ctrl-C, by another signal.
    """
    from bert_jax import in_python

    return in_python.fit(config, workdir)
