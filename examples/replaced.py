"""An objective: ELECTRA's replaced-token detection (Clark et al., arXiv:2003.10555).

    python -m bert_jax.main --config=examples/replaced.py

A generator of half the width fills the masks, and BERT predicts for each token whether
it is another one than in the text. Both share the embeddings. Fine-tuning from such a
run takes BERT and leaves the generator. `predict` and `dev`'s masked LM are the
generator.
"""

from collections.abc import Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array
from ml_collections import ConfigDict

from bert_jax.models.attention import AttentionMask
from bert_jax.models.config import BertConfig, encoder_flops, pretraining_flops
from bert_jax.models.encoder import Bert, Encoder
from bert_jax.models.heads import MaskedLmHead
from bert_jax.models.layers import Dense
from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.tasks.objectives import OBJECTIVES, Objective, masked_targets
from bert_jax.types import Scalars

extends = "tiny"
LAMBDA = 50.0  # times the discriminator's loss
WIDTH = 2  # the generator has a half of each size


def small(config: BertConfig) -> BertConfig:
    names = ("hidden_size", "num_attention_heads", "intermediate_size")
    sizes = {name: getattr(config, name) // WIDTH for name in names}
    return BertConfig.create({**vars(config), **sizes, "scan_layers": False}, 0)


class Electra(nn.Module):
    """A generator and BERT, called as `BertForPreTraining` is.

    It returns `masked_lm_logits`, `ids` [batch, length], with the generator's tokens,
    and `replaced_logits` [batch, length].
    """

    config: BertConfig

    def setup(self) -> None:
        config, narrow = self.config, small(self.config)
        self.bert, self.generator = Bert(config), Encoder(narrow)
        size, width = (config.hidden_size,), (narrow.hidden_size,)
        self.generator_input = Dense(narrow, width, ("embed", "pooled"))
        self.generator_output = MaskedLmHead(config)
        self.replaced = Dense(config, size, ("embed", "pooled"))
        self.replaced_output = Dense(config, (1,), ("embed", "labels"), logits=True)

    def __call__(self, ids, mask, segments, positions, key=None, packed=None):
        keys = (None,) * 4 if key is None else jax.random.split(key, 4)
        attention_mask, own = AttentionMask.from_input_mask(mask), None
        if packed is not None:
            own = packed.position_ids
            attention_mask = AttentionMask(
                packed.sequence_ids, packed.sequence_ids, own
            )
        embedded = self.bert.embeddings(ids, segments, keys[0], own)
        hidden, _ = self.generator(
            self.generator_input(embedded), attention_mask, keys[1]
        )
        chosen = jnp.take_along_axis(hidden, positions[:, :, None], axis=1)
        table = self.bert.embeddings.word_embeddings.table
        logits = self.generator_output(chosen, table)
        drawn = jax.random.key(0) if keys[2] is None else keys[2]
        pieces = jax.random.categorical(drawn, jax.lax.stop_gradient(logits))
        ids = put(ids, positions, pieces)
        hidden = self.replaced(self.bert(ids, mask, segments, keys[3], packed).sequence)
        replaced = self.replaced_output(nn.gelu(hidden, approximate=False))[..., 0]
        return {"masked_lm_logits": logits, "ids": ids, "replaced_logits": replaced}


def put(ids: Array, positions: Array, pieces: Array) -> Array:
    """Returns the ids with these tokens. Position 0, a [CLS], is an unused one."""
    pieces = jnp.where(positions > 0, pieces, ids[:, :1])
    return jax.vmap(lambda row, at, new: row.at[at].set(new))(ids, positions, pieces)


def is_replaced(outputs: Mapping, batch: Mapping) -> Array:
    text = put(batch["input_ids"], batch["masked_lm_positions"], batch["masked_lm_ids"])
    return (outputs["ids"] != text).astype(jnp.float32)


def losses(outputs: Mapping, batch: Mapping) -> Scalars:
    """Returns the generator's cross entropy, and LAMBDA times that of replaced or
    not."""
    ids, weights = masked_targets(batch)
    generator = jnp.sum(weights * cross_entropy(outputs["masked_lm_logits"], ids))
    logits, labels = outputs["replaced_logits"], is_replaced(outputs, batch)
    each = batch["input_mask"] * optax.sigmoid_binary_cross_entropy(logits, labels)
    return {"generator_loss": generator, "replaced_loss": LAMBDA * jnp.sum(each)}


def weights(batch: Mapping) -> Scalars:
    pieces, tokens = masked_targets(batch).weights, batch["input_mask"]
    return {"generator_loss": jnp.sum(pieces), "replaced_loss": jnp.sum(tokens)}


def scores(outputs: Mapping, batch: Mapping) -> dict:
    mask = batch["input_mask"]
    right = (outputs["replaced_logits"] > 0) == is_replaced(outputs, batch)
    return {"replaced_accuracy": (jnp.sum(mask * right), jnp.sum(mask))}


def flops(config: BertConfig, length: int, predictions: int, pairs: int) -> int:
    extra = encoder_flops(small(config), length)
    return extra + pretraining_flops(config, length, predictions, 0)


OBJECTIVES["replaced"] = Objective(
    *(losses, weights, scores), next_sentence=False, model=Electra, flops=flops
)


def get_config(config: ConfigDict) -> ConfigDict:
    config.task.objective = "replaced"
    config.task.nsp_loss = False
    config.task.word_initializer = "normal"
    config.masking.mask_fraction, config.masking.random_fraction = 1.0, 0.0
    return config
