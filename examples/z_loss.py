"""A transform of a loss: the masked LM with a z-loss (Chowdhery et al. 2022, PaLM).

    python -m bert_jax.main --config=examples/z_loss.py

The square of the logarithm of the softmax's divisor is added, which keeps it near 1.
Its coefficient is a field of this file's own: `--config.train.z_loss=1e-3`.
"""

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from bert_jax.config.field import Field
from bert_jax.registry import TRANSFORMS
from bert_jax.tasks.objectives import masked_targets
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training.transforms import Loss, Transform

extends = "tiny"


def with_z_loss(loss: Loss, task: Pretraining) -> Loss:
    def changed(params, batch, key):
        sums = loss(params, batch, key)
        # The same outputs as in `loss`: the compiler computes them once.
        logits = task.apply(params, batch, key)["masked_lm_logits"]
        squares = jax.nn.logsumexp(logits, axis=-1) ** 2
        total = jnp.sum(masked_targets(batch).weights * squares)
        return sums | {"z_loss": task.config.train.z_loss * total}

    return changed


TRANSFORMS["z_loss"] = Transform(with_z_loss, {"z_loss": "masked_lm_loss"})


def get_config(config: ConfigDict) -> ConfigDict:
    config.train.transforms = ("z_loss",)
    config.train.z_loss = Field(1e-4, "[0, 1]", doc="Coefficient of the z-loss")
    return config
