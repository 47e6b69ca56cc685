"""An optimizer for fine-tuning: each layer learns less than the one above it (Howard
and Ruder 2018, arXiv:1801.06146, discriminative fine-tuning, as ELECTRA also does).

    python -m bert_jax.main --config=examples/layerwise.py \\
        --config.init_from=runs/tiny --config.task.train_file=train.csv \\
        --config.task.dev_file=dev.csv

The head and the pooler have the rate, the last layer that learns DECAY times that, and
so on down to the embeddings, with which the other parameters below the layers go.
"""

import re
from collections.abc import Callable

import jax
import numpy as np
import optax
from jaxtyping import PyTree
from ml_collections import ConfigDict

from bert_jax.training.optimizer import OPTIMIZERS, bert_adam

extends = "finetune/text:recipe=tiny"
DECAY = 0.9


def factors(params: PyTree) -> PyTree:
    """Returns the factor of each parameter's rate.

    For layers that are stacked in one array, it is [layers, 1, ...].
    """
    paths = jax.tree_util.tree_leaves_with_path(params)
    layers = max((_layers(_name(path), leaf) for path, leaf in paths), default=0)

    def factor(path: tuple, leaf: jax.Array) -> float | np.ndarray:
        name = _name(path)
        # What the layers read: embeddings, their projection, tables of distances.
        if re.match("bert/(?!encoder/|pooler/)", name):
            return DECAY ** (layers + 1)
        if found := re.search(r"encoder/layer_(\d+)/", name):
            return DECAY ** (layers - int(found[1]))
        if "encoder/layers/" in name:
            each = DECAY ** np.arange(layers, 0, -1, dtype=np.float32)
            return each.reshape(-1, *([1] * (leaf.ndim - 1)))
        return 1.0

    return jax.tree_util.tree_map_with_path(factor, params)


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _layers(name: str, leaf: jax.Array) -> int:
    """Returns the number of layers, as far as this parameter shows it."""
    found = re.search(r"encoder/layer_(\d+)/", name)
    if "encoder/layers/" in name:
        return leaf.shape[0]
    return int(found[1]) + 1 if found else 0


def layerwise(
    fields: ConfigDict, schedule: optax.Schedule, mask: Callable
) -> optax.GradientTransformation:
    """Returns BERT's Adam, its steps (decay too) times each parameter's factor."""
    scaled = optax.stateless(
        lambda updates, _: jax.tree.map(lambda u, f: u * f, updates, factors(updates))
    )
    return optax.chain(bert_adam(fields, schedule, mask), scaled)


OPTIMIZERS["layerwise"] = layerwise


def get_config(config: ConfigDict) -> ConfigDict:
    config.optimizer.name = "layerwise"
    return config
