"""ELMo (Peters et al. 2018): language models of both directions.

See docs/elmo.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.family import Family, LazyImport

if TYPE_CHECKING:
    from bert_jax.families.elmo.loading import Elmo as Frozen


def load(folder: str | Path) -> "Frozen":
    """Opens an ELMo.

    It is a folder with options.json and weights.hdf5, released or exported, or a run of
    configs/elmo.py or with an ELMo, of which the checkpoint is read.

    Raises:
      UserError: A file is missing or damaged, the two do not fit together, or h5py,
        which weights.hdf5 needs, is not installed.
    """
    from bert_jax.families.elmo import loading

    return loading.load(folder)


class Elmo(Family):
    """The differences between ELMo and BERT."""

    name, title = "elmo", "an ELMo"
    vocabulary = None  # words are read by their characters
    source = LazyImport("bert_jax.families.elmo.sources:ElmoSource")
    weights_file = "options.json"
    model_type = ""
    attends = has_segments = shares_rows = False
    trunk_name = "elmo"
    pretraining = LazyImport("bert_jax.families.elmo.pretraining:Elmo")
    fields = LazyImport("bert_jax.families.elmo.fields:FIELDS")
    extractor = LazyImport("bert_jax.families.elmo.extractor:ElmoExtractor")
    registry_entries: Mapping[str, Mapping[str, str]] = {
        "optimizer.name": {"adagrad": "bert_jax.families.elmo.optimizer:adagrad"}
    }

    def task(self, name: str, task: Any) -> Any:
        from bert_jax.families.elmo import tasks

        return tasks.of(name, task)

    def fill_defaults(self, config: Any) -> None:
        """Sets nothing: no text is embedded, and `nsp` has no meaning."""

    def describe_input(self, config: Any) -> str:
        cased = "uncased" if config.tokenizer.lowercase else "cased"
        return f"read by their characters, cut at {config.task.words}, {cased}"

    def export_error(self, task: Any) -> str:
        return "" if task["name"] == self.name else super().export_error(task)


FAMILY = Elmo()
