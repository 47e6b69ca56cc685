"""Reads Google's checkpoints: bert_config.json, bert_model.ckpt.* and vocab.txt."""

import contextlib
import logging
import os
import pathlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from bert_jax.convert.layout import BERT, Place, Weights, as_it_is, default_labels
from bert_jax.convert.parameters import Array
from bert_jax.convert.source import Source
from bert_jax.errors import UserError, first_line
from bert_jax.models.config import BertConfig
from bert_jax.runtime import untrusted

log = logging.getLogger(__name__)

CONFIG = "bert_config.json"
# The optimizer's variables, which are not weights (optimization.py).
_NOT_WEIGHTS = ("adam_m", "adam_v", "global_step")


class Google(Source):
    """A released checkpoint, or one that run_classifier.py or run_squad.py wrote."""

    def config(self) -> BertConfig:
        fields = untrusted.read_json(self.folder, CONFIG)
        fields = {"type_vocab_size": 16, **fields}  # the default of modeling.py
        return BERT.config(fields, self.folder / CONFIG)

    def labels(self) -> tuple[str, ...]:
        return _architecture(self._variables().shapes)[1]

    def heads(self) -> tuple[str, ...]:
        return BERT.architectures[_architecture(self._variables().shapes)[0]]

    def read(self, place: Place = as_it_is, name: str = "") -> Weights:
        """Reads the checkpoint, with TensorFlow (the `google` extra)."""
        config = self.config()
        if config.hidden_act == "gelu":
            log.info(
                "%s: hidden_act gelu uses erf, as when Google released BERT; for the "
                'tanh approximation of its code since 2019 write "gelu_new" there',
                self.folder / CONFIG,
            )
        variables = self._variables()
        architecture, labels = _architecture(variables.shapes)
        parts = BERT.parts(architecture, variables, config, "google")
        return BERT.build(
            variables, config, architecture, parts, labels, place, dialect="google"
        )

    def _variables(self) -> "_Variables":
        return _Variables(_prefix(pathlib.Path(str(self.folder))))


class _Variables:
    """The weights of a checkpoint; TensorFlow reads them."""

    def __init__(self, prefix: Path):
        self.where = str(prefix)
        with _explained(prefix):
            # Otherwise its C++ code prints about devices.
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
            import tensorflow

            for kind in ("GPU", "TPU"):
                tensorflow.config.set_visible_devices([], kind)
            self._reader = tensorflow.train.load_checkpoint(self.where)
            shapes = self._reader.get_variable_to_shape_map()
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: tuple(shape)
            for name, shape in shapes.items()
            if name.rpartition("/")[2] not in _NOT_WEIGHTS
        }

    def read(self, name: str) -> Array:
        with _explained(self.where):
            return np.asarray(self._reader.get_tensor(name), np.float32)


@contextlib.contextmanager
def _explained(prefix: object) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"{prefix}: a TensorFlow checkpoint, but TensorFlow is not installed; "
            "install the google extra: pip install -e '.[google]'"
        ) from error
    except Exception as error:  # TensorFlow's errors share no narrower class
        raise UserError(
            f"{prefix}: cannot be read: {first_line(error)}; the file is damaged; "
            "download it again"
        ) from error


def _prefix(folder: Path) -> Path:
    """The checkpoint's path without file endings.

    Raises:
      UserError: there is no checkpoint, more than one, or a part is missing.
    """
    indices = sorted(folder.glob("bert_model.ckpt.index"))
    indices = indices or sorted(folder.glob("*.ckpt*.index"))
    if len(indices) != 1:
        names = ", ".join(path.name for path in indices) or "none"
        raise UserError(
            f"{folder}: one checkpoint is required, bert_model.ckpt.index; found "
            f"{names}"
        )
    prefix = indices[0].with_suffix("")
    if not any(folder.glob(f"{prefix.name}.data-*")):
        raise UserError(f"{prefix}.data-00000-of-00001: no such file")
    return prefix


def _architecture(
    shapes: Mapping[str, tuple[int, ...]],
) -> tuple[str, tuple[str, ...]]:
    """Returns the architecture and the labels, by the heads of the checkpoint: the
    config names neither."""
    if labelled := shapes.get("output_weights"):
        return "BertForSequenceClassification", default_labels(labelled[0])
    if "cls/squad/output_weights" in shapes:
        return "BertForQuestionAnswering", ()
    if "cls/predictions/output_bias" in shapes:
        return "BertForMaskedLM", ()
    return "BertModel", ()
