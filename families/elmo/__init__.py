"""ELMo (Peters et al. 2018): language models of both directions; docs/families.md."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.config import rules
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
    vocabulary = None  # words are read by their characters
    source = Part("families.elmo.sources:ElmoSource")
    released = "options.json"
    model_type = ""
    attends = has_segments = shares_rows = False
    trunk_name = "elmo"
    pretraining = Part("families.elmo.pretraining:Elmo")
    rules: Mapping[str, Any] = {
        # Of configs/elmo.py.
        "task.words": rules.one_of("spaces", "punctuation"),
        "task.max_characters": rules.whole(3, 10_000),
        "task.character_size": rules.whole(1, rules.SIZE),
        "task.filters": rules.texts,
        "task.activation": rules.one_of("relu", "tanh"),
        "task.highways": rules.whole(0, 100),
        "task.skip": rules.flag,
        "task.cell_clip": rules.number(),
        "task.projection_clip": rules.number(),
        "task.unroll": rules.whole(1, rules.SIZE),
        "task.fresh": rules.number("[0, 1]"),
        "task.samples": rules.whole(1, rules.SIZE),
        # Of configs/finetune/ with model=elmo.
        "task.elmo_system": rules.one_of("attention", "finetuned"),
        "task.lstm_size": rules.whole(1, rules.SIZE),
        "task.lstm_layers": rules.whole(1, 100),
        "task.elmo_dropout": rules.number("[0, 1)"),
        "task.dropout": rules.number("[0, 1)"),
        "task.classifier_size": rules.whole(0, rules.SIZE),
        "task.tag_scheme": rules.one_of("", "BIO", "IOB1", "BIOES", "none"),
    }
    extractor = Part("families.elmo.extractor:ElmoExtractor")

    def task(self, name: str, task: Any) -> Any:
        from families.elmo import tasks

        return tasks.of(name, task)

    def words(self, config: Any) -> str:
        cased = "uncased" if config.tokenizer.lowercase else "cased"
        return f"read by their characters, cut at {config.task.words}, {cased}"

    def table_rows(self, config: Any) -> int:
        # Only pre-training has a table of words.
        return config.model.vocab_size if config.task.name == self.name else 0

    def unexported(self, task: Any) -> str:
        return "" if task["name"] == self.name else super().unexported(task)


FAMILY = Elmo()
