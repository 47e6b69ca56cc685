"""Reads Google's checkpoints: bert_config.json, bert_model.ckpt.* and vocab.txt."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.convert import layout, reading
from bert_jax.convert.bert import weights_of
from bert_jax.convert.config import bert_config
from bert_jax.convert.reading import GOOGLE_CONFIG
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig
from bert_jax.runtime import untrusted

log = logging.getLogger(__name__)

DIALECT = "google"
# The optimizer's variables, which are not weights (optimization.py).
_NOT_WEIGHTS = ("adam_m", "adam_v", "global_step")


def read(
    folder: Path, place: Callable[[layout.Array], Any] = reading.as_it_is
) -> layout.Weights:
    """Reads a released checkpoint, or one that run_classifier.py or run_squad.py wrote.

    Args:
      place: see `reading.build`.

    Raises:
      UserError: TensorFlow is missing (the `google` extra); a file is missing or
        damaged.
    """
    config = read_config(folder)
    if config.hidden_act == "gelu":
        log.info(
            "%s: hidden_act gelu uses erf, as when Google released BERT; for the tanh "
            'approximation of its code since 2019 write "gelu_new" there',
            folder / GOOGLE_CONFIG,
        )
    variables = _Variables(_prefix(folder))
    reading.check_layers(variables, config)
    architecture, labels = _architecture(variables.shapes)
    parts = layout.parts_present(variables.shapes, config, architecture, DIALECT)
    name = layout.all_of(architecture, parts)
    table = layout.parameters
    return weights_of(
        variables, config, name, parts, table, labels, set(), place, DIALECT
    )


def read_config(folder: Path) -> BertConfig:
    """The model's sizes; raises UserError if they are wrong or not supported."""
    fields = untrusted.read_json(folder, GOOGLE_CONFIG)
    return bert_config(fields, folder / GOOGLE_CONFIG, type_vocab_size=16)


def read_architecture(folder: Path) -> tuple[str, tuple[str, ...]]:
    """The architecture and the labels, by the heads that the checkpoint has.

    Raises:
      UserError: see `read`.
    """
    return _architecture(_Variables(_prefix(folder)).shapes)


class _Variables:
    """The weights of a checkpoint; TensorFlow reads them."""

    def __init__(self, prefix: Path):
        self.where = str(prefix)
        tensorflow = _tensorflow(prefix)
        try:
            self._reader = tensorflow.train.load_checkpoint(str(prefix))
            shapes = self._reader.get_variable_to_shape_map()
        except Exception as error:  # TensorFlow's errors share no narrower class
            raise UserError(_damaged(prefix, error)) from error
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: tuple(shape)
            for name, shape in shapes.items()
            if name.rpartition("/")[2] not in _NOT_WEIGHTS
        }

    def read(self, name: str) -> layout.Array:
        try:
            value = np.asarray(self._reader.get_tensor(name))
        except Exception as error:  # as above
            raise UserError(_damaged(Path(self.where), error)) from error
        if not np.issubdtype(value.dtype, np.floating):
            raise UserError(f"{self.where}: {name} holds {value.dtype}, not float32")
        return value.astype(np.float32, copy=False)


def _damaged(prefix: Path, error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{prefix}: cannot be read: {text}; the file is damaged; download it again"


def _tensorflow(prefix: Path) -> Any:
    """Imports TensorFlow without accelerators and without terminal output."""
    try:
        with _quiet():
            import tensorflow

            for kind in ("GPU", "TPU"):
                tensorflow.config.set_visible_devices([], kind)
    except ImportError as error:
        raise UserError(
            f"{prefix}: a TensorFlow checkpoint, but TensorFlow is not installed; "
            "install the google extra: pip install -e '.[google]'"
        ) from error
    return tensorflow


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides what TensorFlow's C++ code prints about devices on standard error, some of
    it before it reads any setting."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _prefix(folder: Path) -> Path:
    """The checkpoint's path without file endings.

    Raises:
      UserError: there is no checkpoint, more than one, or a part is missing.
    """
    indices = sorted(folder.glob("*.ckpt*.index"))
    if len(indices) > 1:
        released = [p for p in indices if p.name == "bert_model.ckpt.index"]
        indices = released or indices
    if len(indices) != 1:
        names = ", ".join(path.name for path in indices) or "none"
        raise UserError(
            f"{folder}: one checkpoint is required, bert_model.ckpt.index; found "
            f"{names}"
        )
    prefix = indices[0].with_suffix("")
    shards = sorted(folder.glob(f"{prefix.name}.data-*"))
    if not shards:
        raise UserError(f"{prefix}.data-00000-of-00001: no such file")
    return prefix


def _architecture(
    shapes: Mapping[str, tuple[int, ...]],
) -> tuple[str, tuple[str, ...]]:
    """See `read_architecture`; the config does not name it."""
    if "output_weights" in shapes:
        labels = shapes["output_weights"][0] if shapes["output_weights"] else 0
        return "BertForSequenceClassification", layout.default_labels(labels)
    if "cls/squad/output_weights" in shapes:
        return "BertForQuestionAnswering", ()
    if "cls/predictions/output_bias" in shapes:
        return "BertForMaskedLM", ()
    return "BertModel", ()
