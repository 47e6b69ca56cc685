"""MPNet (Song et al. 2020): BERT's layers with biases of relative positions.

See docs/encoders.md.
"""

from typing import Any

from bert_jax.errors import UserError
from bert_jax.families import roberta
from bert_jax.models.config import KERNELS


def _check(config: Any) -> None:
    if config.attention in KERNELS:
        raise UserError(
            f"config.model.attention={config.attention}: computes no biases of "
            "relative positions, which an MPNet has; choose einsum"
        )


FAMILY = roberta.FAMILY.replace(
    name="mpnet",
    title="an MPNet",
    model_type="mpnet",
    with_heads="bert_jax.families.mpnet.model:MPNetWithHeads",
    check=_check,
    layout="bert_jax.families.mpnet.layout:LAYOUT",
    vocabulary="bert_jax.tokenization.tokenizer_json:OTHER_WORDPIECE",
)
