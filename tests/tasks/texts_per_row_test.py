"""Several texts in a row of training: the same losses, gradients and answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from micro import initial_params

from bert_jax.errors import UserError
from bert_jax.training.log import count_positions
from tests.close import GRADIENT_TERMS, assert_close
from tests.tasks.classification_test import Texts, make
from tests.tasks.small_texts import text_row

__all__ = ["make"]  # a fixture


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "multilabel"])
def test_texts_in_shared_rows_have_the_loss_and_gradients_of_texts_alone(make, kind):
    rng = np.random.default_rng(0)
    examples = []
    for index in range(24):
        text = " ".join(rng.choice(list("abcdefghij"), rng.integers(1, 12)))
        label = {
            "classification": index % 2,
            "multilabel": (index % 2, index % 3 // 2),
        }[kind]
        examples.append(text_row(index, text, "c d" if index % 3 else None, label))
    found = []
    for texts in (1, 4):
        task = make(examples, 16, kind=kind, texts_per_row=texts)
        task.resolve()
        task.config.train.batch_size = 16
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


@pytest.mark.slow
def test_own_losses_and_weights_are_of_texts_however_rows_are_shared(make):
    class Own(Texts):
        def row_losses(self, logits, batch):
            return jnp.abs(logits["logits"][:, 0] - batch["label"])

        def row_weights(self, batch):
            return batch["row_weights"] * (1 + batch["label"])

    examples = [text_row(n, " ".join("abcd"[: 1 + n % 4]), None, n) for n in range(9)]
    found = []
    for texts in (1, 3):
        given = make((), 8, ("score",), kind="regression", texts_per_row=texts).config
        task = Own(given, examples)
        task.config.train.batch_size = 9
        params = initial_params(task.init_params)
        batch = jax.tree.map(jnp.asarray, next(task.batches(0, slice(None), 0)))
        (loss,), (weight,) = (
            parts.values()
            for parts in (
                jax.jit(task.loss)(params, batch, None),
                task.loss_weights(batch),
            )
        )
        found.append((float(loss), float(weight)))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


@pytest.mark.slow
def test_text_does_not_see_the_others_of_its_row(make):
    examples = [text_row(n, "a b c d", None, n % 2) for n in range(4)]
    task = make(examples, 8, texts_per_row=4)
    task.config.train.batch_size = 4
    params = initial_params(task.init_params)
    batch = jax.tree.map(jnp.asarray, next(task.batches(0, slice(None), 0)))
    run = jax.jit(task.logits)
    before = run(params, batch)["logits"]
    batch["input_ids"] = jnp.where(batch["sequence_ids"] == 2, 8, batch["input_ids"])
    after = run(params, batch)["logits"]
    changed = (before != after).any(axis=-1)
    assert changed.tolist() == [False, True, False, False]


def test_model_whose_rows_cannot_be_shared(make):
    task = make(texts_per_row=4)
    task.config.model.causal = True
    with pytest.raises(UserError, match=r"texts_per_row=4: is for a BERT"):
        Texts(task.config, ())
