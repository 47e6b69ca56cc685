"""A task of one's own: SQuAD 2.0 with a second head, which says whether there is an
answer, as in ALBERT and Retro-Reader (Zhang et al. 2020, arXiv:2001.09694).

    python -m bert_jax.main --config=examples/answerable.py \
        --config.task.train_file=train-v2.0.json --config.task.dev_file=dev-v2.0.json

The loss is the span's plus the binary cross entropy of the second head, which reads
the pooled [CLS]. Its logit is added to the score of "no answer".
"""

import math

import jax.numpy as jnp
import optax

from bert_jax.tasks import TASKS
from bert_jax.tasks.squad.task import Squad

extends = "finetune/squad:version=2.0"


class Answerable(Squad):
    """Spans, and the logit of "no answer in this window" as `logits` [batch, 1]."""

    heads = ("question_answering", "sequence_classification")

    def row_losses(self, logits, batch):
        spans = super().row_losses(logits, batch)
        is_null = jnp.asarray(batch["start_positions"] == 0, jnp.float32)  # at [CLS]
        null = optax.sigmoid_binary_cross_entropy(logits["logits"][:, 0], is_null)
        return spans + null

    def decode_answers(self, rows, features, outputs):
        nulls = [math.inf] * len(rows)  # the least of a question's windows
        for feature, output in zip(features, outputs, strict=True):
            logit = float(output["logits"][0])
            nulls[feature.example] = min(nulls[feature.example], logit)
        answers = super().decode_answers(rows, features, outputs)
        return [
            answer._replace(null_score=answer.null_score + null)
            for answer, null in zip(answers, nulls, strict=True)
        ]


TASKS["answerable"] = Answerable


def get_config(config):
    config.task.name = "answerable"
    return config
