"""An objective: the masked LM with focal loss (Lin et al. 2017, arXiv:1708.02002).

    python -m bert_jax.main --config=examples/focal.py

A token that the model already predicts with probability p counts (1 - p)^2 as much.
`dev` has `focal_loss` next to the same cross entropy, perplexity and accuracy as any
other run.
"""

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict

from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.tasks.objectives import OBJECTIVES, Objective, masked_targets
from bert_jax.types import Scalars

extends = "tiny"
GAMMA = 2.0  # 0 means cross entropy


def focal_loss(
    logits: Float[Array, "*batch vocab"], labels: Int[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """Returns (1 - p)^GAMMA times -log p, in nats."""
    nats = jnp.maximum(cross_entropy(logits, labels), 0.0)
    return (-jnp.expm1(-nats)) ** GAMMA * nats


def losses(outputs: Mapping[str, Array], batch: Mapping[str, Array]) -> Scalars:
    """Returns losses as BERT's, with another loss of the masked tokens."""
    ids, weights = masked_targets(batch)
    each = focal_loss(outputs["masked_lm_logits"], ids)
    return {"focal_loss": jnp.sum(weights * each)}


def weights(batch: Mapping[str, Array]) -> Scalars:
    return {"focal_loss": jnp.sum(masked_targets(batch).weights)}


OBJECTIVES["focal"] = Objective(losses, weights)


def get_config(config: ConfigDict) -> ConfigDict:
    config.task.objective = "focal"
    return config
