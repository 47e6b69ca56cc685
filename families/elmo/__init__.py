"""ELMo (Peters et al. 2018): language models of both directions; docs/elmo.md."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.family import Family, Part

if TYPE_CHECKING:
    from families.elmo.loading import Elmo as Frozen


def load(folder: str | Path) -> "Frozen":
    """Opens an ELMo: a folder with options.json and weights.hdf5, released or exported;
    or a run of configs/elmo.py or with an ELMo, its checkpoint.

    Raises:
      UserError: a file is missing or damaged, the two do not fit together, or h5py,
        which weights.hdf5 needs, is not installed.
    """
    from families.elmo import loading

    return loading.load(folder)


class Elmo(Family):
    """What an ELMo does otherwise than BERT."""

    name, title = "elmo", "an ELMo"
    model_type = ""  # Hugging Face has no such models
    attends = has_segments = False
    trunk_name = "elmo"
    extractor = Part("families.elmo.extractor:ElmoExtractor")

    def task(self, name: str, task: Any) -> Any:
        from families.elmo import tasks

        return tasks.of(name, task)


ELMO = Elmo()
