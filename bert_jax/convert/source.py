"""Sources: what any folder of weights answers, whoever wrote it."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.config.fields import FIELDS
from bert_jax.convert import export, layout, merge, model_card
from bert_jax.convert.layout import Place, Weights, as_it_is
from bert_jax.errors import UserError
from bert_jax.family import Family
from bert_jax.models.config import BertConfig
from bert_jax.runtime import hub
from bert_jax.runtime.storage import Path
from bert_jax.tokenization import folders

# A model's spare rows, which make their number a multiple, as NVIDIA's 30,528.
_PADDED, _SPARE = 8, 128


class Source:
    """A folder of weights; a subclass for each kind.

    Attributes:
      folder: where the files are.
      family: of the model.
      step: of the one checkpoint that is meant; None means the newest.
    """

    def __init__(self, folder: Path, family: Family, step: int | None = None):
        self.folder, self.family, self.step = folder, family, step

    def check(self) -> None:
        """Raises UserError if there are no such weights."""

    def config(self) -> BertConfig:
        """Returns the model's sizes; raises UserError if they are not supported."""
        raise self.refusal()

    def shape(self) -> dict[str, Any]:
        """Returns the values of the fields that weights decide, by `GROUP.NAME`.

        Raises:
          UserError: see `config`.
        """
        model = self.config()
        values = vars(model) | dict(model.family_fields)
        known = FIELDS | dict(self.family.fields)
        return {
            f"model.{name}": value
            for name, value in values.items()
            if (field := known.get(f"model.{name}")) and field.weights
        }

    def labels(self) -> tuple[str, ...]:
        """Returns the names of a fine-tuned model's outputs, if there are any."""
        return ()

    def heads(self) -> tuple[str, ...]:
        """Returns the heads of weights without a run, if the folder names them."""
        return ()

    def kind(self) -> str | None:
        """Returns the `task.kind` of a text classifier, if the folder says it."""
        return None

    def recorded(self) -> dict[str, Any] | None:
        """Returns the config of the run that wrote the weights; None if unknown."""
        return None

    def read(self, place: Place = as_it_is, name: str = "") -> Weights:
        """Reads the weights, as float32 NumPy arrays or what `place` returns for them.

        Args:
          place: see `Layout.read`.
          name: of a work directory's folder of checkpoints; empty means that the run's
            config decides.

        Raises:
          UserError: a file is missing or damaged, or the model is of another kind.
        """
        raise self.refusal()

    def tokenizer(self, config: BertConfig | None = None) -> Tokenizer | None:
        """Returns the tokenizer beside the weights; None if there is none.

        Args:
          config: the model's; raises UserError if the two do not match.
        """
        tokenizer = tokenization.of_folder(self.folder)
        if tokenizer is not None and config is not None:
            pieces, rows = tokenizer.get_vocab_size(), config.vocab_size
            padded = rows % _PADDED == 0 and 0 < rows - pieces < _SPARE
            certain = padded and folders.lacks_none(self.folder, tokenizer)
            if pieces != rows and not certain:
                raise UserError(
                    f"{self.folder}: its vocabulary has {pieces} pieces, but the "
                    f"model's vocab_size is {rows}; is it of another model, or does "
                    "vocab.txt lack lines? If they are at its end, add a line "
                    "[unused...] of its own for each there"
                )
        return tokenizer

    def start(
        self, task: Any, abstract: Any, name: str = ""
    ) -> tuple[dict[str, Any], merge.Report]:
        """Reads the first parameters of a run; see `training.setup.init_weights`."""
        given = task.config.init_from
        weights = self.read(name=name)
        merge.check_tokenizer(task.tokenizer, self.tokenizer(weights.config), given)
        labels = tuple(task.config.task.get("labels", ()))
        if labels and not _same(weights.labels, labels):
            weights = _without(weights, layout.LABELLED_HEADS)
        return merge.merge(abstract, weights, task.model_config, hub.resolved(given))

    def exported(self, name: str) -> tuple[Weights, Mapping[str, Any]]:
        """Returns what an export writes: the weights, and the run they are from."""
        return self.read(name=name), {}

    def export(
        self,
        target: pathlib.Path,
        name: str = "",
        dtype: str = "float32",
    ) -> str:
        """Writes a Hugging Face model folder; returns its lengths, in words.

        Args:
          name: see `read`.
          dtype: see `export.export`, also for errors.
        """
        export.check_target(target.absolute())
        weights, provenance = self.exported(name)
        tokenizer = self.tokenizer(weights.config)
        export.export(weights, tokenizer, target, provenance, dtype)
        return model_card.lengths(weights.config, provenance)

    def refusal(self) -> UserError:
        """Returns an error: weights of this family where another's are required."""
        return UserError(f"{self.folder}: weights of {self.family.title}")


def _same(saved: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Whether the labels are the same; LABEL_0, ... count as unnamed."""
    unnamed = saved == layout.default_labels(len(saved))
    return saved == wanted or (unnamed and len(saved) == len(wanted))


def _without(weights: Weights, heads: tuple[str, ...]) -> Weights:
    """The weights without the classifier heads, whose labels are not the task's."""
    gone = [f"{head} (of other labels)" for head in heads if head in weights.params]
    return dataclasses.replace(
        weights,
        params={k: v for k, v in weights.params.items() if k not in heads},
        left_over=(*gone, *weights.left_over),
    )
