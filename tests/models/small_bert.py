"""A BERT of three layers, with parameters drawn once for all tests."""

import functools

import flax.linen as nn
import jax
import numpy as np
from micro import bert_config

from bert_jax.models.heads import BertForPreTraining, init_pretraining

CONFIG = bert_config(
    vocab_size=50,
    hidden_size=12,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=16,
)


@functools.cache
def initial_params(config):
    init = jax.jit(lambda key: nn.meta.unbox(init_pretraining(config, key)))
    return init(jax.random.key(0))


def apply(config, params, *batch):
    return jax.jit(BertForPreTraining(config).apply)({"params": params}, *batch)


@functools.cache
def random_params(config):
    """Parameters far from their initial values, so that a swap cannot hide."""
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: x + 0.5 * rng.normal(size=x.shape).astype(np.float32),
        initial_params(config),
    )
