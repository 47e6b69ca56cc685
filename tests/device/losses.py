"""Prints the losses of training steps: `python -m tests.device.losses ATTENTION DTYPE
STEPS`, on the devices that JAX_PLATFORMS names."""

import json
import sys

from bert_jax.models import layers
from experiments.speed import our_step


def losses(attention: str, dtype: str, steps: int) -> list[float]:
    """Returns the losses of two layers of 128 with dropout, on a batch of random
    tokens.

    On a GPU the operations after products are fused where attention is.
    """
    config = our_step.sized_config("2/128", 64, 16)
    config.model.attention, config.model.dtype = attention, dtype
    fuses = attention == "fused" and layers.platform_name() == "gpu"
    config.model.epilogue = "fused" if fuses else "xla"
    step = our_step.OurStep(config, [our_step.random_batch(config)])
    return [step(1) for _ in range(steps)]


if __name__ == "__main__":
    print(json.dumps(losses(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
