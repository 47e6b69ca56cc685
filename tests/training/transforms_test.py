"""Transforms of a loss in a run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.registry import TRANSFORMS
from bert_jax.tasks.objectives import masked_targets
from bert_jax.training.transforms import Transform, accumulate, cached
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


BATCH = {
    "x": np.linspace(-1, 2, 24).reshape(8, 3),
    "w": np.float32([1, 0, 2] + 5 * [1]),
}
PARAMS = {"kernel": np.float32([[0.5, -1], [2, 0.25], [-0.75, 1]])}


def divisors(batch):
    return {"square": jnp.sum(batch["w"]), "size": 2 * jnp.sum(batch["w"])}


def vectors(params, batch, key):
    return {"rows": jnp.tanh(batch["x"] @ params["kernel"])}


def sums(found, batch):
    """A sum over rows, and one whose rows are independent too, with other factors."""
    squares = batch["w"] * jnp.sum(found["rows"] ** 2, axis=1)
    return {
        "square": jnp.sum(squares),
        "size": 3 * jnp.sum(batch["w"] * found["rows"].T),
    }


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("kind", ["accumulated", "cached"])
def test_gradient_is_that_of_the_sums_by_their_weights(kind, parts):
    """Its size too, which Adam would hide."""

    def whole(params):
        found = sums(vectors(params, BATCH, None), BATCH)
        return found["square"] / 8 + found["size"] / 16

    if kind == "cached":
        gradient = cached(vectors, sums, divisors, parts)
    else:
        gradient = accumulate(
            lambda params, batch, key: sums(vectors(params, batch, key), batch),
            *(divisors, parts),
        )
    expected, value = jax.grad(whole)(PARAMS), whole(PARAMS)
    grads, losses, _ = gradient(PARAMS, BATCH, jax.random.key(0))
    np.testing.assert_allclose(
        grads["kernel"], expected["kernel"], rtol=1e-5, atol=1e-7
    )
    assert losses.keys() == {"square", "size"}
    assert float(sum(losses.values())) == pytest.approx(float(value), rel=1e-5)


def compares(found, batch):
    """A loss of pairs of rows."""
    similar = found["rows"] @ found["rows"].T
    return {"pairs": jnp.sum(jnp.where(similar > 0, similar, 0) ** 2)}


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_cached_gradient_compares_all_rows(parts):
    expected = jax.grad(lambda p: compares(vectors(p, BATCH, None), BATCH)["pairs"] / 8)
    weights = lambda batch: {"pairs": jnp.float32(len(batch["x"]))}  # noqa: E731
    gradient = cached(vectors, compares, weights, parts)
    grads, *_ = gradient(PARAMS, BATCH, jax.random.key(0))
    np.testing.assert_allclose(
        grads["kernel"], expected(PARAMS)["kernel"], rtol=1e-5, atol=1e-7
    )


def test_each_micro_batch_has_a_key_of_its_own():
    """One batch has the key of the first part."""

    def noise(params, batch, key):
        return {"rows": jax.random.normal(key, (len(batch["x"]), 1)) * params["scale"]}

    def drawn(parts):
        gradient = cached(
            noise,
            lambda found, _: {"noise": jnp.sum(found["rows"] * found["rows"])},
            lambda _: {"noise": jnp.float32(1)},
            parts,
        )
        return gradient({"scale": jnp.float32(1)}, BATCH, jax.random.key(3))

    for parts in (1, 2):
        keys = [jax.random.fold_in(jax.random.key(3), part) for part in range(parts)]
        rows = [jax.random.normal(key, (8 // parts, 1)) for key in keys]
        expected = 2 * np.sum(np.concatenate(rows) ** 2)
        assert float(drawn(parts)[0]["scale"]) == pytest.approx(expected, rel=1e-5)
