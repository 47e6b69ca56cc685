"""Several texts in a row of training: the same losses, gradients and answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.training.log import count_positions
from tests.close import GRADIENT_TERMS, assert_close
from tests.micro import initial_params
from tests.tasks.finetuning_test import make, texts_task
from tests.tasks.small_texts import text_row

__all__ = ["make"]  # a fixture


@pytest.mark.slow
def test_texts_in_shared_rows_have_the_loss_and_gradients_of_texts_alone(make):
    rng = np.random.default_rng(0)
    examples = []
    for index in range(24):
        text = " ".join(rng.choice(list("abcdefghij"), rng.integers(1, 12)))
        second = "c d" if index % 3 else None
        examples.append(text_row(index, text, second, (index % 2, index % 3 // 2)))
    found = []
    for texts in (1, 4):
        task = make(examples, 16, kind="multilabel", texts_per_row=texts)
        task.resolve()
        task.fill_in({"train.batch_size": 16})
        if texts == 1:
            params = initial_params(task.init_params)
        rows = next(task.batches(0, slice(None), 0))
        assert count_positions(rows)[0] == texts
        batch = jax.tree.map(jnp.asarray, rows)

        def loss(params, task=task, batch=batch):
            (total,) = task.loss(params, batch, None).values()
            (weight,) = task.loss_weights(batch).values()
            return total / weight

        found.append(jax.jit(jax.value_and_grad(loss))(params))
        shape = task.phases()[0].shapes["input_ids"]
        assert shape == (16 // texts, 16 * texts)
    (alone, gradients), (shared, others) = found
    assert_close(alone, shared)
    assert_close(gradients, others, terms=GRADIENT_TERMS)


def test_model_whose_rows_cannot_be_shared(make):
    task = make(texts_per_row=4)
    task.fill_in({"model.causal": True})
    with pytest.raises(UserError, match=r"texts_per_row=4: is for a BERT"):
        texts_task(task.config, ())
