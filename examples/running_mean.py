"""A transform of a loss: the teacher is the running mean of the student (data2vec).

    python -m bert_jax.main --config=examples/running_mean.py

Beside the masked LM, the last vector of each masked token is to be the mean of the last
layers' normalized vectors that the teacher, which sees the whole text, gives the token
(Baevski et al. 2022, arXiv:2202.03555, which has no masked LM). The loss is the squared
difference, a mean over the numbers of a vector.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict

from bert_jax.config.field import Field
from bert_jax.errors import UserError
from bert_jax.models.layers import gather_positions
from bert_jax.registry import TRANSFORMS
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training.transforms import Loss, Transform
from bert_jax.types import Arrays

extends = "tiny"


def whole_text(batch: Arrays) -> Int[Array, "batch length"]:
    """Returns the ids before they were masked."""
    ids, places = batch["input_ids"], batch["masked_lm_positions"]
    seen = jnp.take_along_axis(ids, places, axis=1)
    # Unused places have the weight 0, and are [CLS]'s.
    change = (batch["masked_lm_ids"] - seen) * batch["masked_lm_weights"].astype(int)
    return ids.at[jnp.arange(len(ids))[:, None], places].add(change)


def normalized(x: Float[Array, "... hidden"]) -> Float[Array, "... hidden"]:
    """Returns vectors of the mean 0 and the variance 1."""
    return jax.nn.standardize(x.astype(jnp.float32), epsilon=1e-6)


def with_running_mean(loss: Loss, task: Pretraining) -> Loss:
    train = task.config.train
    if not task.config.optimizer.ema:
        raise UserError(
            "config.optimizer.ema=0: the teacher is this mean; set it 0.999"
        )

    def changed(params, batch, key):
        sums, places = loss(params, batch, key), batch["masked_lm_positions"]
        ours = task.apply(params, batch, key, ("hidden",))["states"][-1]
        text = {**batch, "input_ids": whole_text(batch)}
        theirs = task.apply(params["average"], text, None, ("hidden",))["states"]
        states = [gather_positions(x, places) for x in theirs[-train.mean_layers :]]
        target = normalized(jnp.mean(jnp.stack([*map(normalized, states)]), axis=0))
        apart = gather_positions(ours, places) - jax.lax.stop_gradient(target)
        each = batch["masked_lm_weights"] * jnp.mean(jnp.square(apart), axis=-1)
        return sums | {"mean_loss": train.mean_share * jnp.sum(each)}

    return changed


TRANSFORMS["running_mean"] = Transform(
    with_running_mean, {"mean_loss": "masked_lm_loss"}
)


def get_config(config: ConfigDict) -> ConfigDict:
    config.optimizer.ema = 0.999
    config.train.transforms = ("running_mean",)
    config.train.mean_layers = Field(2, "[1, 100]", doc="Layers of the teacher's mean")
    config.train.mean_share = Field(1.0, doc="Coefficient of the loss of vectors")
    return config
