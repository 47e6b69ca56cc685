"""ELECTRA (google-research/electra, and `transformers`, modeling_electra.py): BERT
without a pooler, classifiers with a hidden layer, and the head of a discriminator."""

from typing import Any, ClassVar

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import Bert, Embeddings, Encoded, Packed
from bert_jax.models.heads import HiddenLayer
from bert_jax.models.layers import Dense, gelu
from bert_jax.types import DropoutKey


class Electra(Bert):
    """The part that every task shares: 13,483,008 parameters for Small, 108,891,648 for
    Base."""

    has_pooler: ClassVar[bool] = False
    given: nn.Module | None = None  # embeddings of another model, in place of its own

    def embeds(self, config: BertConfig) -> nn.Module:
        return Embeddings(config) if self.given is None else self.given


class ElectraDiscriminator(nn.Module):
    """A hidden layer with GELU, and each token's logit of being a replaced one."""

    config: BertConfig

    @nn.compact
    def __call__(
        self, encoded: Encoded, packed: Packed | None = None
    ) -> Float[Array, "batch length"]:
        config = self.config
        size, names = (config.hidden_size,), ("embed", "pooled")
        dense = Dense(config, size, names, name="dense")
        hidden = gelu(dense(self.inputs(encoded, packed)))
        output = Dense(config, (1,), ("embed", "labels"), logits=True, name="output")
        return jnp.asarray(output(hidden))[..., 0]

    def inputs(
        self, encoded: Encoded, packed: Packed | None
    ) -> Float[Array, "batch length hidden"]:
        """Returns the vectors that the hidden layer reads."""
        del packed
        return encoded.sequence


class ElectraWithHeads(BertWithHeads):
    """ELECTRA with any set of heads, of which `replaced_tokens` gives each token a
    logit of being a replaced one."""

    trunk: ClassVar[Any] = Electra
    hidden_layers: ClassVar = {
        "sequence_classification": HiddenLayer(gelu, drops_input=True),
        "multiple_choice": HiddenLayer(gelu, drops_input=False),
    }
    discriminator: ClassVar = ElectraDiscriminator

    def _linear(
        self,
        bert: Any,
        head: str,
        encoded: Encoded,
        key: DropoutKey,
        rows: tuple[int, ...],
    ) -> Float[Array, "..."]:
        if head != "replaced_tokens":
            return super()._linear(bert, head, encoded, key, rows)
        return self.discriminator(self.config, name=head)(encoded)
