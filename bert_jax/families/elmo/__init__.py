"""ELMo (Peters et al. 2018): language models of both directions.

See docs/elmo.md.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.families.elmo.fields import FIELDS
from bert_jax.family import Family

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


def _describe_input(config: Any) -> str:
    cased = "uncased" if config.tokenizer.lowercase else "cased"
    return f"read by their characters, cut at {config.task.words}, {cased}"


FAMILY = Family(
    name="elmo",
    title="an ELMo",
    model_type="",
    has_segments=False,
    fields=FIELDS,
    registry_entries={
        "optimizer.name": {"adagrad": "bert_jax.families.elmo.optimizer:adagrad"}
    },
    vocabulary=None,  # words are read by their characters
    task="bert_jax.families.elmo.tasks:of",
    pretraining="bert_jax.families.elmo.pretraining:Elmo",
    trunk_name="elmo",
    extractor="bert_jax.families.elmo.extractor:ElmoExtractor",
    source="bert_jax.families.elmo.sources:ElmoSource",
    weights_file="options.json",
    describe_input=_describe_input,
)
