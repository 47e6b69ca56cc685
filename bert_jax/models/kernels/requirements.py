"""Requirements of each kernel on a config and its devices."""

from typing import Any

from bert_jax.errors import UserError
from bert_jax.models.config import KERNELS, LONGEST_WHOLE_ROW


def check_attention(
    model: Any, platform: str, *, trains: bool, packed: bool, seeds: int = 1
) -> None:
    """Checks that a config's attention can be computed as the config specifies.

    Args:
      model: `config.model`.
      platform: Platform of the devices: gpu, tpu or cpu.
      trains: Whether the model is trained, with dropout.
      packed: Whether the training rows hold several sequences.
      seeds: Number of models that are trained in one program.

    Raises:
      UserError: The attention cannot be computed.
    """
    if model.epilogue == "fused" and platform != "gpu":
        raise UserError(
            f"config.model.epilogue=fused: needs a GPU, and this is a {platform}; "
            "choose xla"
        )
    name, rate = model.attention, model.attention_probs_dropout_prob
    drops, longest = trains and rate > 0, model.max_position_embeddings
    devices = KERNELS.get(name, (platform,))
    fault = ""
    if platform not in devices:
        wanted = " or a ".join(device.upper() for device in devices)
        fault = f"needs a {wanted}, and this is a {platform};"
    elif drops and name == "cudnn":
        field = "config.model.attention_probs_dropout_prob"
        fault = f"has no dropout, and {field}={rate}; set that to 0, or"
    elif drops and (name, platform) == ("fused", "tpu") and longest > LONGEST_WHOLE_ROW:
        fault = (
            f"has dropout on a TPU for rows of up to {LONGEST_WHOLE_ROW} tokens, and "
            f"config.model.max_position_embeddings={longest}; set that to "
            f"{LONGEST_WHOLE_ROW}, config.model.attention_probs_dropout_prob to 0, or"
        )
    elif name == "cudnn" and model.dtype != "bfloat16":
        fault = (
            f"needs config.model.dtype=bfloat16, and it is {model.dtype}; set it, or"
        )
    elif name == "cudnn" and trains and packed:
        fault = "cannot keep the sequences of packed rows apart;"
    elif name == "cudnn" and trains and seeds > 1:
        fault = f"cannot train the models of config.train.seeds={seeds} together;"
    if fault:
        other = "fused" if name == "cudnn" and platform == "gpu" else "einsum"
        raise UserError(f"config.model.attention={name}: {fault} choose {other}")
