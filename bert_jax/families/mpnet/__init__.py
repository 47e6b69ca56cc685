"""MPNet (Song et al. 2020): BERT's layers with biases of relative positions.

See docs/encoders.md.
"""

from typing import Any

from bert_jax.errors import UserError
from bert_jax.families import roberta


def _check(config: Any) -> None:
    if config.attention == "fused":
        raise UserError(
            "config.model.attention=fused: computes no biases of "
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
