"""Transforms of a loss in a run."""

import jax.numpy as jnp
import pytest

from bert_jax.registry import TRANSFORMS
from bert_jax.tasks.objectives import masked_targets
from bert_jax.training.transforms import Transform
from bert_jax.workdir import metrics
from tests.runs import run


def with_metrics(loss, task):
    """Adds twice the language model's loss, and its number of predictions."""

    def changed(params, batch, key):
        sums = loss(params, batch, key)
        count = jnp.sum(masked_targets(batch).weights)
        return sums | {"twice": 2 * sums["masked_lm_loss"], "ones": count}

    return changed


@pytest.mark.parametrize("parts", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_metric_of_a_loss_is_logged_and_not_trained(
    micro, tmp_path, monkeypatch, parts
):
    names = ("twice", "ones")
    divisors = dict.fromkeys(names, "masked_lm_loss")
    entry = Transform(with_metrics, divisors, logged=names)
    monkeypatch.setitem(TRANSFORMS, "twice", entry)
    few = ("--config.train.num_steps=3", f"--config.train.micro_batches={parts}")
    run(micro, tmp_path / "plain", *few)
    run(micro, tmp_path / "more", *few, "--config.train.transforms=('twice',)")
    plain, more = (
        metrics.read_metrics(tmp_path / name, "train") for name in ("plain", "more")
    )
    for one, other in zip(plain, more, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-6)
        assert other["twice"] == pytest.approx(2 * one["masked_lm_loss"], rel=1e-6)
        assert other["ones"] == pytest.approx(1, rel=1e-6)
