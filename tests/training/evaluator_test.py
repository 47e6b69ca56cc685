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

        def results(split, fetched, *, learns):
            if learns:
                task.fitted["threshold"] = float(fetched[0])
            return Results({"score": task.fitted["threshold"]})

        task.results.side_effect = results
        monkeypatch.setattr(
            Evaluator, "fetch", lambda self, params, split, now: [params]
        )
        mesh = sharding.make_mesh(config)
        return task, Evaluator(task, Seeds(config), mesh, **options)

    return evaluator


def scores(task, evaluator, split, now=1):
    found = []
    for results in evaluator.results(jnp.array([3.0, 4.0]), split, now):
        assert results.scores["score"] == task.fitted["threshold"]
        found.append(results.scores["score"])
    return found


def test_evaluator_keeps_each_seed_s_fitted_values(make):
    task, evaluator = make()
    assert scores(task, evaluator, "test") == [0.0, 0.0]
    assert scores(task, evaluator, "dev") == [3.0, 4.0]
    assert scores(task, evaluator, "test", now=2) == [3.0, 4.0]


def test_evaluator_fits_nothing_unless_it_learns(make):
    task, evaluator = make(learns=False)
    assert scores(task, evaluator, "dev") == [0.0, 0.0]
