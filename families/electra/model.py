"""ELECTRA (google-research/electra, and `transformers`, modeling_electra.py): BERT
without a pooler, classifiers with a hidden layer, and the head of a discriminator."""

from typing import Any, ClassVar

from jaxtyping import Array, Float

from bert_jax.models.architectures import BertWithHeads
from bert_jax.models.encoder import Bert, Encoded
from bert_jax.models.heads import BertForPreTraining, Classifier, HiddenLayer
from bert_jax.models.layers import gelu
from bert_jax.types import DropoutKey


class Electra(Bert):
    """The part that every task shares: 13,483,008 parameters for Small, 108,891,648 for
    Base."""

    has_pooler: ClassVar[bool] = False


class ElectraWithHeads(BertWithHeads):
    """ELECTRA with any set of heads, of which `replaced_tokens` gives each token a
    logit of being a replaced one."""

    hidden_layers: ClassVar = {
        "sequence_classification": HiddenLayer(gelu, drops_input=True),
        "multiple_choice": HiddenLayer(gelu, drops_input=False),
    }

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
        hidden, names = HiddenLayer(gelu, drops_input=False), ("embed", "labels")
        score = Classifier(
            self.config, (1,), names, logits=True, hidden=hidden, name=head
        )
        return score(encoded.sequence)[..., 0]


class ElectraForPreTraining(BertForPreTraining):
    """ELECTRA's generator: its masked LM."""

    trunk: ClassVar = Electra
    has_nsp_head: ClassVar[bool] = False
