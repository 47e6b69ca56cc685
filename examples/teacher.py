"""A transform of a loss: the masked LM also learns from a teacher of one's own.

    python -m bert_jax.main --config=examples/teacher.py

The loss has the divergence from the teacher's probabilities, in nats a token.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from bert_jax.convert.weights import read_weights
from bert_jax.models.encoder import Packed
from bert_jax.models.heads import BertForPreTraining
from bert_jax.registry import TRANSFORMS
from bert_jax.tasks.objectives import masked_targets
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training.transforms import Loss, Transform, beside

extends = "tiny"
FOLDER = "mini"  # a BERT, with the run's vocabulary
COLUMNS = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")


def with_teacher(loss: Loss, task: Pretraining) -> Loss:
    saved = read_weights(FOLDER)
    teacher = BertForPreTraining(saved.config)

    def changed(params, batch, key):
        sums = loss(params, batch, key)
        inputs = (*map(batch.get, COLUMNS), None, Packed.from_batch(batch))
        theirs: Any = teacher.apply({"params": params["saved"]}, *inputs)
        # The same outputs as in `loss`: the compiler computes them once.
        ours = jax.nn.log_softmax(task.apply(params, batch, key)["masked_lm_logits"])
        expected = jax.nn.softmax(theirs["masked_lm_logits"])
        each = masked_targets(batch).weights * optax.kl_divergence(ours, expected)
        return sums | {"teacher_nats": jnp.sum(each)}

    return beside(changed, {"saved": jax.tree.map(jnp.asarray, saved.params)})


TRANSFORMS["own_teacher"] = Transform(with_teacher, {"teacher_nats": "masked_lm_loss"})


def get_config(config: ConfigDict) -> ConfigDict:
    config.train.transforms = ("own_teacher",)
    config.tokenizer.vocab_file = f"{FOLDER}/tokenizer.json"
    return config
