"""ALBERT (google-research/albert, and `transformers`, modeling_albert.py): BERT whose
layers share their parameters, with a linear layer after its embeddings."""

from typing import ClassVar

from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.encoder import Bert


class Albert(Bert):
    """The part that every task shares: 11,683,584 parameters for Base."""

    shares_layers: ClassVar[bool] = True

    @property
    def projects(self) -> bool:
        """Always, even to the same width."""
        return True


class AlbertWithHeads(BertWithHeads):
    """ALBERT with any set of heads."""

    trunk: ClassVar = Albert
