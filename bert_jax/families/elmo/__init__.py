"""ELMo (Peters et al. 2018): language models of both directions.

It is no family of encoders: `python -m bert_jax.families.elmo` is its own program, on
the same steps, checkpoints and logs. See docs/elmo.md.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bert_jax.families.elmo.loading import Elmo


def load(folder: str | Path) -> "Elmo":
    """Opens an ELMo.

    It is a folder with options.json and weights.hdf5, released or exported, or a run of
    configs/elmo.py, of which the checkpoint is read.

    Raises:
      UserError: A file is missing or damaged, the two do not fit together, or h5py,
        which weights.hdf5 needs, is not installed.
    """
    from bert_jax.families.elmo import loading

    return loading.load(folder)
