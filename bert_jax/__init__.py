"""BERT in JAX and Flax, from raw text to exported weights."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bert_jax.pretrained import Bert


def load(path: str | Path) -> "Bert":
    """Opens a model: a work directory, a Hugging Face folder, or one of Google's.

    Raises:
      UserError: there is none, or it is damaged.
    """
    from bert_jax import pretrained  # data preparation needs none of it, nor JAX

    return pretrained.load(path)
