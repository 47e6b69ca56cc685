"""The warm-up of a schedule."""

from ml_collections import ConfigDict

from bert_jax.errors import UserError


def warmup_steps(config: ConfigDict, num_steps: int) -> int:
    """Steps of linear warm-up of a schedule of `num_steps`.

    Raises:
      UserError: they are given twice, or more than the schedule has; the run has no
        steps.
    """
    if config.train.num_steps < 1:
        raise UserError("config.train.num_steps=0: at least 1 is needed")
    steps = config.optimizer.warmup_steps
    fraction = config.optimizer.warmup_fraction
    if steps and fraction:
        raise UserError(
            f"config.optimizer.warmup_steps={steps} and "
            f"config.optimizer.warmup_fraction={fraction}: one of them must be 0"
        )
    if steps > num_steps:
        raise UserError(
            f"config.optimizer.warmup_steps={steps} is more than the schedule's "
            f"{num_steps} steps"
        )
    return int(steps or fraction * num_steps)
