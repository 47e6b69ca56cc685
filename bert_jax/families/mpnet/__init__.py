"""MPNet (Song et al. 2020): BERT's layers with biases of relative positions.

See docs/encoders.md.
"""

from typing import Any

from bert_jax.errors import UserError
from bert_jax.families.roberta import Roberta
from bert_jax.family import LazyImport
from bert_jax.models.config import KERNELS


class MPNet(Roberta):
    """The differences between MPNet and RoBERTa."""

    name, title = "mpnet", "an MPNet"
    for_pretraining = LazyImport("bert_jax.families.mpnet.model:MPNetForPreTraining")
    with_heads = LazyImport("bert_jax.families.mpnet.model:MPNetWithHeads")
    vocabulary = LazyImport("bert_jax.tokenization.tokenizer_json:OTHER_WORDPIECE")
    layout = LazyImport("bert_jax.families.mpnet.layout:LAYOUT")
    model_type = "mpnet"

    def check(self, config: Any) -> None:
        super().check(config)
        if config.attention in KERNELS:
            raise UserError(
                f"config.model.attention={config.attention}: computes no biases of "
                "relative positions, which an MPNet has; choose einsum"
            )


FAMILY = MPNet()
