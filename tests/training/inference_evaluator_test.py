"""The dev-set results of several seeds stay apart."""

from unittest import mock

import jax.numpy as jnp
import pytest

from bert_jax.tasks.task import Results, Task
from bert_jax.training import sharding
from bert_jax.training.inference import Evaluator
from bert_jax.training.seeds import Seeds
from configs import tiny


@pytest.fixture
def make(monkeypatch):
    """An evaluator of two seeds whose outputs are their parameters, without a model."""

    def evaluator(**options):
        config = tiny.get_config("plain")
        config.train.seeds = 2
        task = mock.create_autospec(Task, instance=True)
        task.fitted, task.dev_splits = {"threshold": 0.0}, ("dev",)
        task.outputs = lambda params, batch: params

        def with_fitted(fitted):
            def results(split, fetched, *, learns):
                value = float(fetched[0]) if learns else fitted["threshold"]
                return Results({"score": value}, {"threshold": value})

            return mock.Mock(results=results)

        task.with_fitted = with_fitted
        monkeypatch.setattr(
            Evaluator, "fetch", lambda self, params, split, now: [params]
        )
        mesh = sharding.make_mesh(config)
        return Evaluator(task, Seeds(config), mesh, **options)

    return evaluator


def scores(evaluator, split, now=1):
    results = evaluator.results(jnp.array([3.0, 4.0]), split, now)
    return [each.scores["score"] for each in results]


def test_evaluator_keeps_each_seed_s_fitted_values(make):
    evaluator = make()
    assert scores(evaluator, "test") == [0.0, 0.0]
    assert scores(evaluator, "dev") == [3.0, 4.0]
    assert scores(evaluator, "test", now=2) == [3.0, 4.0]


def test_evaluator_fits_nothing_unless_it_learns(make):
    evaluator = make(learns=False)
    assert scores(evaluator, "dev") == [0.0, 0.0]
