"""Weights in a run's work directory."""

import dataclasses
import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.config import fields
from bert_jax.config.phases import phases_of
from bert_jax.convert import layout
from bert_jax.convert.layout import BERT, Weights
from bert_jax.convert.weights import CHECKPOINTS, Source
from bert_jax.errors import UserError
from bert_jax.models.config import KERNELS, BertConfig
from bert_jax.runtime.storage import Path
from bert_jax.workdir import folder as workdir
from bert_jax.workdir import metrics

log = logging.getLogger(__name__)

# Parts of a model that `layout` supports. Others are custom heads.
_PARTS = {"bert", "bilstm", *itertools.chain(*BERT.architectures.values())}


class Run(Source):
    """A run of pre-training or fine-tuning."""

    def shape(self) -> dict[str, Any]:
        return fields.decided_values(workdir.recorded_config(self.folder, code=False))

    def labels(self) -> tuple[str, ...]:
        return tuple(workdir.read_config(self.folder)["task"].get("labels", ()))

    def recorded(self) -> dict[str, Any] | None:
        return workdir.read_config(self.folder)

    def tokenizer(self, config: BertConfig | None = None) -> Tokenizer | None:
        """Returns the tokenizer. A run may have more embedding rows than tokens."""
        del config
        return super().tokenizer()

    def read(self, name: str = "") -> Weights:
        config, params, step = read_checkpoint(self.folder, name, self.step)
        vocabulary = tokenization.load(self.folder / "tokenizer.json")
        model = BertConfig.create(config.model, vocabulary.get_vocab_size())
        if model.causal:  # no next sentence head was trained
            params.pop("next_sentence", None)
        user_heads = params.keys() - _PARTS
        params = {k: v for k, v in params.items() if k not in user_heads}
        heads = params.keys() - {"bert", "bilstm"}
        architecture = self.family.layout.name_of(heads, model.causal)
        params = _unstacked(jax.device_get(params))
        # Our kernels compute the same as each other. A custom attention does not.
        ours = model.attention in ("einsum", *KERNELS)
        attention = "einsum" if ours else model.attention
        plain = {"epilogue": "xla", "scan_layers": False, "remat": "none"}
        return Weights(
            config=dataclasses.replace(model, attention=attention, **plain),
            params=params,
            architecture=architecture,
            left_over=tuple(sorted(user_heads)),
            labels=_labels(config, params),
            problem_type=_problem_type(config, params),
            provenance={
                "step": step,
                "config": workdir.read_config(self.folder),
                "task": workdir.read_facts(self.folder, step),
                "scores": read_scores(self.folder, step, config.evaluate.splits),
                **trained_length(config, step),
            },
        )


def read_checkpoint(
    folder: Path, name: str = "", only: int | None = None
) -> tuple[ConfigDict, dict[str, Any], int]:
    """Reads a run's config, and a checkpoint's parameters and step.

    Args:
      name: Name of the folder of checkpoints. Empty means the one that the run's config
        selects.
      only: Step of a checkpoint in `checkpoints`. None means the newest.

    Raises:
      UserError: There is none, or the run has several seeds.
    """
    # Imported here: weights of other kinds do not need Orbax.
    from bert_jax.workdir.checkpoint import Checkpoints, checkpoint_name

    config = workdir.recorded_config(folder, code=False)
    workdir.require_one_seed(folder, config)
    name = CHECKPOINTS if only is not None else name or checkpoint_name(config)
    # On one device, whatever mesh it was trained on.
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    with Checkpoints(folder, None, name, only=only) as checkpoints:
        restored = checkpoints.restore_params(sharding)
    if restored is None:
        raise UserError(f"{folder}: has no checkpoint yet")
    return config, *restored


def read_scores(
    folder: Path, step: int, splits: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Returns each split's scores at a step, as far as the run has evaluated it there.

    Raises:
      UserError: The metrics.jsonl is damaged.
    """
    return {
        split: {
            name: float(value)
            for name, value in line.items()
            if name not in ("step", "time") and math.isfinite(value)
        }
        for split in splits
        for line in metrics.read_metrics(folder, split)
        if line["step"] == step
    }


def trained_length(config: ConfigDict, step: int) -> dict[str, int]:
    """Returns `max_seq_length`: the maximum tokens of a text that the run has trained
    on until a step. Empty where the run trains every position, or for a custom task."""
    if "max_seq_length" in config.task:
        return {"max_seq_length": config.task.max_seq_length}
    if config.task.name != "pretraining" or config.corpus.shift_positions:
        return {}
    seen = [phase for phase in phases_of(config) if phase.first_step < max(step, 1)]
    return {"max_seq_length": max(phase.max_seq_length for phase in seen)}


def _labels(config: ConfigDict, params: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the task's names of a classifier's outputs, LABEL_0 ... if unnamed."""
    for head in params.keys() & {*layout.LABELLED_HEADS}:
        labels = tuple(config.task.get("labels", ()))
        return labels or layout.default_labels(len(params[head]["bias"]))
    return ()


def _problem_type(config: ConfigDict, params: Mapping[str, Any]) -> str | None:
    """Returns config.json's problem_type of a text classifier."""
    classifier = params.get("sequence_classification")
    if classifier is None:
        return None
    kind = "regression" if len(classifier["bias"]) == 1 else "classification"
    return layout.PROBLEM_TYPES[config.task.get("kind", kind)]


def _unstacked(params: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a scanned encoder's parameters to an unrolled one's."""
    stacked = params["bert"]["encoder"].get("layers")
    if stacked is None:
        return dict(params)
    rest = {k: v for k, v in params["bert"]["encoder"].items() if k != "layers"}
    encoder = rest | {
        f"layer_{index}": jax.tree.map(lambda leaf, i=index: leaf[i], stacked)
        for index in range(len(jax.tree.leaves(stacked)[0]))
    }
    return {**params, "bert": {**params["bert"], "encoder": encoder}}
