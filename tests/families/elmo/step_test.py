"""ELMo's state from step to step: it reaches the loss, is saved, and outlasts a NaN."""

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.families.elmo.step import CarriedStep
from bert_jax.training import sharding
from tests.close import assert_close
from tests.families.elmo.pretraining_test import batch_of, make_task


def test_carry_goes_to_the_next_step():
    task, batch = make_task(), batch_of()
    step = CarriedStep(task, sharding.make_mesh(task.config, devices=jax.devices()[:1]))
    first = step.first_state()
    assert not any(x.any() for x in jax.tree.leaves(first.carry))
    take = step.trace(first, batch, 1).lower().compile()
    rate = np.float32(0.1)

    def after(state):
        state = jax.tree.map(jnp.copy, state)  # its buffers are donated
        return take(state, batch, step.seeds.array, rate, {})

    one, _ = after(first)
    key = jax.random.key(0)
    _, expected = jax.jit(task.carried_loss)(first.params, batch, key, first.carry)
    for name, value in expected.items():
        assert_close(one.carry[name], value)
    two, metrics = after(one)
    sums, _ = jax.jit(task.carried_loss)(one.params, batch, key, one.carry)
    loss = sums["lm_loss"] / task.loss_weights(batch)["lm_loss"]
    assert_close(metrics["loss"], loss)
    assert "carry" not in metrics
    items = two.items()
    assert items.keys() == {"params", "opt_state", "running_stats", "carry"}
    same = two.restored(items, 2)
    jax.tree.map(np.testing.assert_array_equal, same, two)
    bad = two._replace(params=jax.tree.map(lambda x: x * jnp.nan, two.params))
    skipped, metrics = after(bad)
    assert float(metrics["anomaly"]) and int(skipped.step) == 3
    jax.tree.map(np.testing.assert_array_equal, skipped.carry, two.carry)
