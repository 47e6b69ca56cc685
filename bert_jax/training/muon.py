"""Muon for the encoder's matrices, Adam for all else (Jordan et al. 2024,
kellerjordan.github.io/posts/muon): a small model needs far fewer steps."""

import math
from collections.abc import Callable

import jax
import optax
from jaxtyping import Array, PyTree
from ml_collections import ConfigDict
from optax import contrib

from bert_jax.errors import UserError
from bert_jax.training.optimizer import layer_axes, map_named

MOMENTUM = 0.95
# Times the root of a matrix's longer side: its entries then move as far as AdamW's do,
# so rate and decay are AdamW's (Liu et al. 2025, arXiv:2502.16982, section 2.2).
UPDATE_RMS = 0.2


def muon(
    optimizer: ConfigDict, schedule: optax.Schedule, mask: Callable
) -> optax.GradientTransformation:
    """Makes the optimizer. The update of an encoder's matrix is its momentum with all
    singular values near 1 (Newton-Schulz, five steps). Other parameters' updates are
    Adam's, with `beta1` and `beta2`. Both decay as AdamW.

    Raises (its `init`):
      UserError: No parameter that learns is a matrix of an encoder.
    """
    matrices = optax.chain(
        contrib.scale_by_muon(
            beta=MOMENTUM, eps=optimizer.eps, weight_dimension_numbers=_axes_of_each
        ),
        optax.stateless(lambda updates, _: map_named(_scaled, updates)),
    )
    rest = optax.scale_by_adam(optimizer.beta1, optimizer.beta2, optimizer.eps)
    return optax.chain(
        optax.partition({"matrices": matrices, "rest": rest}, _labels),
        optax.add_decayed_weights(optimizer.weight_decay, mask),
        optax.scale_by_learning_rate(schedule),
    )


def axes(name: str, rank: int) -> contrib.MuonDimensionNumbers | None:
    """Returns the axes of a parameter's inputs and of its outputs, between which it is
    a matrix. None means that it is not an encoder's matrix. Layers that are stacked in
    one array are separate matrices.

    Args:
      name: Path, such as bert/encoder/layer_0/attention/query/kernel.
      rank: Number of axes.
    """
    if "encoder/" not in name or not name.endswith("/kernel"):
        return None
    every = layer_axes(name, rank)
    # [embed, heads, head_dim], [heads, head_dim, embed], or a matrix as it is.
    inputs = len(every) - 1 if name.endswith("attention/output/kernel") else 1
    return contrib.MuonDimensionNumbers(every[:inputs], every[inputs:])


def _axes_of_each(params: PyTree) -> PyTree:
    return map_named(lambda name, param: axes(name, param.ndim), params)


def _scaled(name: str, update: Array) -> Array:
    sides = axes(name, update.ndim)
    assert sides is not None
    lengths = (math.prod(update.shape[axis] for axis in side) for side in sides)
    return update * UPDATE_RMS * max(lengths) ** 0.5


def _labels(params: PyTree) -> PyTree[str]:
    label_tree = map_named(
        lambda name, param: "matrices" if axes(name, param.ndim) else "rest", params
    )
    labels = jax.tree.leaves(label_tree)
    # `optax.tree.map_params` passes a placeholder, which has no leaves.
    if labels and "matrices" not in labels:
        raise UserError(
            "config.optimizer.name=muon: no matrix of a Transformer encoder learns in "
            "this run; choose adamw"
        )
    return label_tree
