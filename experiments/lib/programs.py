"""Traces a config's training step on any devices, without its data."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from bert_jax import tasks, tokenization
from bert_jax.config import configuration
from bert_jax.config.phases import Phase
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES, Family
from bert_jax.models.config import BertConfig
from bert_jax.tasks.glue.data import TASKS as GLUE
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.task import Task
from bert_jax.tokenization import wordpiece
from bert_jax.tokenization.byte_level import ByteLevel
from bert_jax.training import sharding
from bert_jax.training.step import Step

PIECES = 30522  # vocabulary of bert-base-uncased, where the config names none
STEPS = 1000  # length of a run that depends on its data
Columns = dict[str, jax.ShapeDtypeStruct]

# Columns of a head's batch besides its inputs: scalars of a row, or of each token.
_SCALARS = {
    "sequence_classification": ("label",),
    "multiple_choice": ("label",),
    "question_answering": ("start_positions", "end_positions"),
    "token_classification": (),
}
_PRETRAINING = "next_sentence_labels"


@dataclasses.dataclass(frozen=True)
class Program:
    """A traced step, ready to be lowered.

    Attributes:
      donated: Arguments whose memory the results take.
      rows: Number of rows in a batch, over all devices and micro-batches.
    """

    traced: jax.stages.Traced
    mesh: Mesh
    donated: Any
    rows: int
    length: int


def load(spec: str, fields: Sequence[str]) -> ConfigDict:
    """Loads a config, with the values that would come from data set to the usual sizes.

    Raises:
      UserError: The config is wrong.
    """
    config = configuration.load_config(spec, list(fields))
    if not config.train.num_steps:
        config.train.num_steps = STEPS
    if "labels" in config.task and not config.task.labels:
        config.task.labels = _labels(config.task)
    if not config.tokenizer.vocab_size:
        config.tokenizer.vocab_size = PIECES
    return config


def _labels(task: ConfigDict) -> tuple[str, ...]:
    """Returns the labels of the task's own data, or two for a task that has none."""
    if task.name in GLUE:
        return tuple(GLUE[task.name].labels)
    if task.get("kind") == "regression":
        return ("score",)
    if task.name == "ner":  # CoNLL-2003
        kinds = ("PER", "ORG", "LOC", "MISC")
        return ("O", *(f"{first}-{kind}" for kind in kinds for first in "BI"))
    return ("0", "1")


def task_of(config: ConfigDict) -> Task:
    """Returns the config's task. A vocabulary that it does not name is a stand-in.

    Raises:
      UserError: Its model is not a Transformer.
    """
    own = tokenization.load_config_tokenizer(config)
    if own is None:
        pieces = config.model.vocab_size or config.tokenizer.vocab_size
        family = FAMILIES[config.model.architecture]
        kind = family.vocabulary
        if isinstance(kind, ByteLevel):  # whose padding may have to have an id
            own = kind.train((), pieces, lowercase=False)
        else:
            own = stand_in(pieces, padding_id(family))
    task = tasks.create_task(config, own)
    if not isinstance(task.model_config, BertConfig):
        kind = type(task.model_config).__name__.removesuffix("Config")
        raise UserError(
            f"config: {kind} is no Transformer, and what it needs is not known; name a "
            "BERT, GPT, RoBERTa or ModernBERT"
        )
    Task.resolve(task)  # a task's own would read its data
    if isinstance(task, Pretraining):
        # Evaluation compares with the corpus's counts of tokens: another constant.
        vars(task)["_unigram_log_probs"] = np.zeros(task.config.model.vocab_size)
    return task


def trace_step(
    config: ConfigDict, devices: Sequence[jax.Device], index: int = -1
) -> Program:
    """Traces the training step of a run.

    Args:
      index: Index of the training's phase.

    Raises:
      UserError: The config does not fit the devices.
    """
    task = task_of(config)
    mesh = sharding.make_mesh(config, ("train",), devices)
    phase = task.phases()[index]
    split = sharding.batch_sharding(mesh)
    batch = {
        name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=split)
        for name, leaf in columns(task, phase).items()
    }
    step = Step(task, mesh)
    state, batch = map(step.seeds.abstract, (step.abstract, batch))
    traced = step.trace(state, batch, phase.micro_batches)
    length = phase.shapes["input_ids"][-1]
    return Program(traced, mesh, state, phase.batch_size, length)


def columns(task: Any, phase: Phase, rows: int = 0) -> Columns:
    """Returns shapes and dtypes of a training batch.

    Args:
      rows: Number of rows in the batch. 0 means as many as the phase has.
    """
    shapes = dict(phase.shapes)
    if _PRETRAINING not in shapes:
        tokens = shapes["input_ids"]
        added = dict.fromkeys(("input_mask", "segment_ids"), tokens)
        scalars = (*_SCALARS[task.heads[0]], "row_weights")
        added |= dict.fromkeys(scalars, tokens[:1])
        if "token_classification" in task.heads:
            added["labels"] = tokens
        shapes = added | shapes
    kind = getattr(task, "kind", "")
    if kind == "multilabel":
        shapes["label"] = (*shapes["label"], len(task.labels))
    floats = {name for name in shapes if name.endswith("weights")}
    if kind in ("multilabel", "regression"):
        floats.add("label")
    return {
        name: jax.ShapeDtypeStruct(
            (rows or whole[0], *whole[1:]), jnp.float32 if name in floats else jnp.int32
        )
        for name, whole in shapes.items()
    }


def padding_id(family: Family) -> int:
    """Returns the id of the padding in a family's released vocabularies."""
    found: int = family.layout.fixed.get("pad_token_id", 0)
    return found


@functools.cache
def stand_in(pieces: int, pad: int = 0) -> Tokenizer:
    """Returns a tokenizer of `pieces` tokens, where only their number matters.

    Args:
      pad: Id of the padding, a small one.
    """
    special = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    special.insert(pad, "[PAD]")
    names = [*special, *(f"piece{index}" for index in range(pieces - len(special)))]
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special)
    wordpiece.add_special_tokens(tokenizer)
    return tokenizer
