"""Requirements of the kernels on a config and its devices."""

from typing import Any

from bert_jax.errors import UserError
from bert_jax.models.config import LONGEST_WHOLE_ROW

# Each fused field, the devices that have its kernels, and the value for others.
_DEVICES = (("attention", ("gpu", "tpu"), "einsum"), ("epilogue", ("gpu",), "xla"))


def check_attention(model: Any, platform: str, trains: bool) -> None:
    """Checks that a model can be computed as its config specifies.

    Args:
      model: `config.model`.
      platform: Platform of the devices: gpu, tpu or cpu.
      trains: Whether the model is trained, with dropout.

    Raises:
      UserError: The attention or the epilogue cannot be computed.
    """
    for field, devices, other in _DEVICES:
        if getattr(model, field) == "fused" and platform not in devices:
            wanted = " or a ".join(device.upper() for device in devices)
            raise UserError(
                f"config.model.{field}=fused: needs a {wanted}, and this is a "
                f"{platform}; choose {other}"
            )
    is_splash = (model.attention, platform) == (
        "fused",
        "tpu",
    ) and model.max_position_embeddings > LONGEST_WHOLE_ROW
    if is_splash and trains and model.attention_probs_dropout_prob > 0:
        raise UserError(
            "config.model.attention=fused: has dropout on a TPU for rows of up to "
            f"{LONGEST_WHOLE_ROW} tokens, and config.model.max_position_embeddings="
            f"{model.max_position_embeddings}; set that to {LONGEST_WHOLE_ROW}, "
            "config.model.attention_probs_dropout_prob to 0, or choose einsum"
        )
