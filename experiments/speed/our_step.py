"""A run's own step of pre-training, or of a classifier, on a batch made here.

Everything that shapes the step is the run's: the task, the optimizer, the state on its
mesh, its `Step`. Only the batch needs no prepared data.
"""

import argparse
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flax import traverse_util
from jaxtyping import Array
from ml_collections import ConfigDict

from bert_jax.config import fields
from bert_jax.data import packing
from bert_jax.family import FAMILIES, bert_config
from bert_jax.models.config import encoder_flops, pretraining_flops
from bert_jax.models.heads import count_parameters
from bert_jax.training import sharding
from bert_jax.training.step import Step
from configs import base
from configs.finetune import glue
from experiments.lib import programs

KNOWN = ("base", "large")
PACKED = 2  # pairs of a packed row. Real text fills one with two to three
FIRST_PIECE = 1000  # first in bert-base-uncased after special and unused ones


def add_family(parser: argparse.ArgumentParser) -> None:
    """Adds --family, one of those that `transformers` has too."""
    known = [name for name, family in FAMILIES.items() if family.model_type]
    parser.add_argument("--family", default="bert", choices=known)


def sized_config(
    size: str,
    length: int,
    batch_size: int,
    task: str = "pretraining",
    family: str = "bert",
) -> ConfigDict:
    """Returns a task's config of a size and one length.

    Args:
      size: Model size: base, large, or LAYERS/HIDDEN, with a head for each 64 of HIDDEN
        and Base's ratio of the intermediate size to it (Turc et al. 2019,
        arXiv:1908.08962).
      length: Number of tokens in a row. 15% of them, and a little more, are predicted:
        20 of 128, 77 of 512 (google-research/bert, README.md).
      batch_size: Number of rows.
      task: pretraining or classification, which is that of SST-2.
      family: Model family of a classifier (docs/families.md).
    """
    known = size if size in KNOWN else "base"
    config = base.get_config(size=known)
    if task == "classification":
        config = glue.get_config(known, "sst2", family)
        config.task.max_seq_length, config.train.num_steps = length, 1
        if not config.model.vocab_size:
            config.model.vocab_size = config.tokenizer.vocab_size
    if size != known:
        layers, hidden = map(int, size.split("/"))
        ratio = config.model.intermediate_size / config.model.hidden_size
        config.model.num_hidden_layers = layers
        if config.model.get("embedding_size") == config.model.hidden_size:
            config.model.embedding_size = hidden
        config.model.hidden_size = hidden
        config.model.num_attention_heads = max(1, hidden // 64)
        config.model.intermediate_size = round(ratio * hidden)
    config.phase2.fraction = 0.0
    config.corpus.max_seq_length = length
    config.masking.max_predictions_per_seq = count_predictions(length)
    config.train.batch_size = config.evaluate.batch_size = batch_size
    return config


def count_predictions(length: int) -> int:
    """Returns predicted positions of a row: 20 of 128 and 77 of 512, as published."""
    return 20 if length == 128 else max(1, round(0.15 * length))


def step_flops(config: ConfigDict) -> int:
    """Returns the FLOPs of a step, by the model, of rows that are not packed."""
    model = bert_config(config.model, config.tokenizer.vocab_size)
    length = config.corpus.max_seq_length
    if config.task.name != "pretraining":
        return config.train.batch_size * encoder_flops(model, length)
    chosen = config.masking.max_predictions_per_seq
    pairs = int(FAMILIES[model.architecture].has_nsp_head)
    return config.train.batch_size * pretraining_flops(model, length, chosen, pairs)


def random_batch(config: ConfigDict) -> dict[str, np.ndarray]:
    """Returns full rows: random tokens in two segments, no padding or special ones.

    With `corpus.packing` each row has PACKED of these.
    """
    if config.corpus.packing:
        return _packed_batch(config)
    rows, length = config.train.batch_size, config.corpus.max_seq_length
    chosen = config.masking.max_predictions_per_seq
    rng = np.random.default_rng(0)
    pieces = config.model.vocab_size
    ids = rng.integers(min(FIRST_PIECE, pieces // 2), pieces, (rows, length), np.int32)
    positions = np.stack(
        [np.sort(rng.permutation(np.arange(1, length))[:chosen]) for _ in range(rows)]
    ).astype(np.int32)
    has_second = config.model.type_vocab_size > 1
    starts_b = rng.integers(1, length, (rows, 1)) if has_second else length
    inputs = {
        "input_ids": ids,
        "input_mask": np.ones((rows, length), np.int32),
        "segment_ids": (np.arange(length) >= starts_b) + np.zeros_like(ids),
    }
    classes = rng.integers(0, 2, rows, np.int32)
    if config.task.name != "pretraining":
        return inputs | {"label": classes, "row_weights": np.ones(rows, np.float32)}
    return {
        **inputs,
        "masked_lm_positions": positions,
        "masked_lm_ids": np.take_along_axis(ids, positions, axis=1),
        "masked_lm_weights": np.ones(positions.shape, np.float32),
        "next_sentence_labels": classes,
    }


def _packed_batch(config: ConfigDict) -> dict[str, np.ndarray]:
    rows, length = config.train.batch_size, config.corpus.max_seq_length
    most = config.masking.max_predictions_per_seq
    single = {
        "corpus.packing": False,
        "corpus.max_seq_length": length // PACKED,
        "train.batch_size": rows * PACKED,
        "masking.max_predictions_per_seq": most // PACKED,
    }
    pairs = random_batch(fields.with_values(config, single))
    tokens = ("input_ids", "input_mask", "segment_ids")
    room = length - length // PACKED
    pairs |= {name: np.pad(pairs[name], ((0, 0), (0, room))) for name in tokens}
    pairs_of_a_row = config.corpus.packed_pairs
    filled = np.tile(np.arange(pairs_of_a_row) < PACKED, (rows, 1))
    share = config.masking.masked_lm_prob
    columns = packing.max_predictions(length, share, most, pairs_of_a_row)
    return packing.pack_pairs(pairs, filled, columns, pad=0)


class OurStep:
    """A run's compiled step and its state.

    Args:
      batches: Batches of one shape. The steps go through them again and again.

    Attributes:
      parameters: Number of parameters that learn.
      compiled: Program of the step.

    Raises:
      UserError: The config's values do not fit, or not this device.
    """

    def __init__(self, config: ConfigDict, batches: Sequence[Mapping[str, np.ndarray]]):
        self._task = programs.task_of(config)
        self._batches, self._size = itertools.cycle(batches), config.train.batch_size
        self._mesh = sharding.make_mesh(config)
        step = Step(self._task, self._mesh)
        self._rate = np.float32(config.optimizer.learning_rate)
        self._seeds, self._state = step.seeds, step.first_state()
        by_path = traverse_util.flatten_dict(self._state.params, sep="/")
        unused = self._task.unused_parameters()  # the loss does not depend on them
        used = {k: v for k, v in by_path.items() if not k.startswith(unused)}
        self.parameters = count_parameters(used)
        traced = step.trace(self._state, self._placed(), config.train.micro_batches)
        self.compiled = traced.lower().compile()

    def __call__(self, steps: int) -> float:
        """Takes `steps` steps and waits. The host's batch goes to the device in each.

        Returns:
          The last step's loss.
        """
        metrics: dict[str, Any] = {}
        for _ in range(steps):
            self._state, metrics = self.compiled(
                *(self._state, self._placed(), self._seeds.array, self._rate, {})
            )
        return float(metrics["loss"])

    def _placed(self) -> dict[str, Array]:
        return sharding.place_batch(next(self._batches), self._mesh, self._size)
