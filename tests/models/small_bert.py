"""A BERT of two layers, with parameters drawn and programs compiled once for all."""

import functools

import jax
import numpy as np

from bert_jax.models.heads import BertForPreTraining
from tests import micro

SIZES = {
    "vocab_size": 50,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
}
CONFIG = micro.bert_config(**SIZES)


@functools.cache
def initial_params(config):
    return micro.initial_params(functools.partial(micro.init_pretraining, config))


@functools.cache
def compiled(config):
    return jax.jit(BertForPreTraining(config).apply)


def apply(config, params, *batch):
    return compiled(config)({"params": params}, *batch)


@functools.cache
def random_params(config):
    """Parameters far from their initial values, so that a swap cannot hide."""
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: x + 0.5 * rng.normal(size=x.shape).astype(np.float32),
        initial_params(config),
    )
