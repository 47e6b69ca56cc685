"""Replaced-token detection (Clark et al. 2020): a generator fills the masks, and the
model learns to tell its tokens from those of the text.

Both models are in one training state. A family's `replaced_tokens` is its subclass of
`ReplacedTokens`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from bert_jax.errors import UserError
from bert_jax.families.electra.model import Electra, ElectraDiscriminator
from bert_jax.family import FAMILIES, GENERATOR
from bert_jax.models.config import BertConfig, encoder_flops, pretraining_flops
from bert_jax.models.encoder import Packed
from bert_jax.models.heads import BertForPreTraining
from bert_jax.tasks.objectives import Objective, lm_losses, lm_weights
from bert_jax.types import Arrays, DropoutKey, Scalars

LAMBDA = 50.0  # multiple of the discriminator's loss


def generator_config(config: BertConfig) -> BertConfig:
    """Returns the generator's sizes, with the heads' size of the discriminator.

    Its layers are not stacked, because `stack_layers` does not know of them.
    """
    own = dict(config.family_fields)
    width = own.get("generator_hidden_size", 1.0)
    heads = max(1, round(width * config.num_attention_heads))
    layers = own.get("generator_layers", 1.0) * config.num_hidden_layers
    return dataclasses.replace(
        config,
        hidden_size=heads * config.head_dim,
        num_attention_heads=heads,
        intermediate_size=max(1, round(width * config.intermediate_size)),
        num_hidden_layers=max(1, round(layers)),
        scan_layers=False,
    )


class ReplacedTokens(nn.Module):
    """A generator and a discriminator, called as `BertForPreTraining` is.

    Subclasses set `generator`, called as `BertForPreTraining` is, the discriminator
    `bert`, and its head `replaced_tokens`.
    """

    config: BertConfig

    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        input_mask: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"],
        masked_lm_positions: Int[Array, "batch predictions"],
        key: DropoutKey = None,
        packed: Packed | None = None,
    ) -> dict[str, Array]:
        """Returns the generator's `masked_lm_logits` [batch, predictions, vocab], `ids`
        [batch, length] with tokens drawn from them, and `replaced_logits` [batch,
        length] of these. Without a key the same tokens are drawn in each call."""
        keys = (None,) * 3 if key is None else tuple(jax.random.split(key, 3))
        positions, inputs = masked_lm_positions, (input_mask, segment_ids)
        guessed = self.generator(input_ids, *inputs, positions, keys[0], packed)
        logits = guessed["masked_lm_logits"]
        drawn = jax.random.key(0) if keys[1] is None else keys[1]
        tokens = jax.random.categorical(drawn, jax.lax.stop_gradient(logits))
        ids = put_tokens(input_ids, positions, tokens)
        encoded = self.bert(ids, *inputs, keys[2], packed)
        replaced = self.replaced_tokens(encoded, packed)
        return {"masked_lm_logits": logits, "ids": ids, "replaced_logits": replaced}

    @classmethod
    def split(
        cls, config: BertConfig, params: Mapping[str, Any]
    ) -> dict[str, tuple[BertConfig, Mapping[str, Any]]]:
        """Returns the models of a run with a generator. See `Family.models`."""
        bert, trunk = cls.complete(params["bert"], params[GENERATOR]["bert"])
        own = {name: x for name, x in params.items() if name != GENERATOR}
        generator = {**params[GENERATOR], "bert": trunk}
        return {
            "": (config, {**own, "bert": bert}),
            GENERATOR: (generator_config(config), generator),
        }

    @classmethod
    def join(
        cls, params: Mapping[str, Any], others: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Inverts `split`. `others` has the generator's parameters, if known."""
        generator = others.get(GENERATOR, {"bert": {}})
        bert, trunk = cls.shared(params["bert"], generator["bert"])
        return {**params, "bert": bert, GENERATOR: {**generator, "bert": trunk}}

    @staticmethod
    def complete(
        bert: Mapping[str, Any], generator: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Returns the trunks of both models, each with all of its parameters, from
        those of a run, where they share some."""
        raise NotImplementedError

    @staticmethod
    def shared(
        bert: Mapping[str, Any], generator: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Inverts `complete`. `generator` is empty if there is none."""
        raise NotImplementedError


def put_tokens(
    ids: Int[Array, "batch length"],
    positions: Int[Array, "batch predictions"],
    tokens: Int[Array, "batch predictions"],
) -> Int[Array, "batch length"]:
    """Returns the ids with these tokens. Position 0, a [CLS], is an unused one."""
    tokens = jnp.where(positions > 0, tokens, ids[:, :1])
    return jax.vmap(lambda row, at, new: row.at[at].set(new))(ids, positions, tokens)


def is_replaced(outputs: Arrays, batch: Arrays) -> Float[Array, "batch length"]:
    """Returns 1 where the discriminator reads another token than the text has."""
    given = batch["masked_lm_positions"], batch["masked_lm_ids"]
    text = put_tokens(batch["input_ids"], *given)
    return (outputs["ids"] != text).astype(jnp.float32)


def losses(outputs: Arrays, batch: Arrays) -> Scalars:
    """Sums the generator's cross entropy, and LAMBDA times that of each token being a
    replaced one, in nats."""
    logits, labels = outputs["replaced_logits"], is_replaced(outputs, batch)
    each = batch["input_mask"] * optax.sigmoid_binary_cross_entropy(logits, labels)
    own = {"replaced_loss": LAMBDA * jnp.sum(each)}
    return lm_losses("masked_lm", outputs, batch) | own


def weights(batch: Arrays) -> Scalars:
    """Counts the masked tokens, and all tokens."""
    tokens = {"replaced_loss": jnp.sum(batch["input_mask"])}
    return lm_weights("masked_lm", batch) | tokens


def scores(outputs: Arrays, batch: Arrays) -> dict[str, tuple[Array, Array]]:
    """Counts the tokens that are judged correctly, those that are replaced, and of
    these the ones that are found."""
    mask, labels = batch["input_mask"], is_replaced(outputs, batch)
    found, total, replaced = (
        outputs["replaced_logits"] > 0,
        jnp.sum(mask),
        mask * labels,
    )
    return {
        "replaced_accuracy": (jnp.sum(mask * (found == labels)), total),
        "replaced_fraction": (jnp.sum(replaced), total),
        "replaced_recall": (jnp.sum(replaced * found), jnp.sum(replaced)),
    }


def create_model(config: BertConfig) -> nn.Module:
    """Returns the family's `ReplacedTokens`. Raises UserError if it has none."""
    family = FAMILIES[config.architecture]
    if family.replaced_tokens is None:
        known = (name for name, x in FAMILIES.items() if x.replaced_tokens)
        raise UserError(
            f"config.task.objective=replaced_tokens: {family.title} is not trained so; "
            f"set --config.model.architecture to one of {', '.join(known)}"
        )
    model: nn.Module = family.replaced_tokens(config)
    return model


def flops(config: BertConfig, length: int, predictions: int, pairs: int) -> int:
    """Returns `pretraining_flops` of the generator, and those of the discriminator."""
    del pairs
    head = 2 * length * config.hidden_size * (config.hidden_size + 1)
    both = encoder_flops(config, length) + 3 * head
    return both + pretraining_flops(generator_config(config), length, predictions, 0)


OBJECTIVE = Objective(
    *(losses, weights, scores), next_sentence=False, model=create_model, flops=flops
)


class Generator(BertForPreTraining):
    """ELECTRA's masked LM with embeddings of another model."""

    has_nsp_head: bool = False
    embeddings: nn.Module | None = None

    def setup(self) -> None:
        self.bert = Electra(self.config, self.embeddings)
        self.masked_lm = self.lm_head(self.config)


class ElectraReplacedTokens(ReplacedTokens):
    """ELECTRA's models, which share all embeddings, trained by both losses."""

    def setup(self) -> None:
        self.bert = Electra(self.config)
        self.replaced_tokens = ElectraDiscriminator(self.config)
        sizes, embeddings = generator_config(self.config), self.bert.embeddings
        self.generator = Generator(sizes, embeddings=embeddings)

    @staticmethod
    def complete(
        bert: Mapping[str, Any], generator: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        return bert, {**generator, "embeddings": bert["embeddings"]}

    @staticmethod
    def shared(
        bert: Mapping[str, Any], generator: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        own = {name: x for name, x in generator.items() if name != "embeddings"}
        return bert, own
