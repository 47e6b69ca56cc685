"""The numbers of config.optimizer, checked."""

import math

from ml_collections import ConfigDict

from bert_jax.errors import UserError


def warmup_steps(config: ConfigDict, num_steps: int) -> int:
    """Steps of linear warm-up of a schedule of `num_steps`.

    Raises:
      UserError: they are given twice, or more than the schedule has.
    """
    steps = number(config, "warmup_steps")
    fraction = number(config, "warmup_fraction")
    if steps and fraction:
        raise UserError(
            f"config.optimizer.warmup_steps={steps} and "
            f"config.optimizer.warmup_fraction={fraction}: one of them must be 0"
        )
    if fraction > 1:
        raise UserError(f"config.optimizer.warmup_fraction={fraction}: at most 1")
    if steps > num_steps:
        raise UserError(
            f"config.optimizer.warmup_steps={steps} is more than the schedule's "
            f"{num_steps} steps"
        )
    return int(steps or fraction * num_steps)


def number(config: ConfigDict, field: str, below: float = math.inf) -> int | float:
    """A field of `config.optimizer`; raises UserError if it is not in [0, below)."""
    value = config.optimizer[field]
    if not 0 <= value < below:
        limit = "" if below == math.inf else f" and less than {below}"
        raise UserError(f"config.optimizer.{field}={value}: at least 0{limit}")
    return value
