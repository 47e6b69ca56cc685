"""Planned programs: those that runs share, and the columns of each task's batches."""

import jax
import numpy as np
import pytest

from bert_jax import tasks
from bert_jax.config import configuration
from experiments.lib import programs
from tests.micro_data import write_inputs


def step_text(*fields):
    given = ("train.batch_size=8", "model.num_hidden_layers=1", *fields)
    config = programs.load("configs/tiny.py", [f"--config.{field}" for field in given])
    return programs.trace_step(config, jax.devices()[:1]).traced.lower().as_text()


@pytest.mark.slow
def test_rate_is_an_argument():
    steps = ("train.num_steps=77", "optimizer.warmup_fraction=0.5")
    assert step_text("optimizer.learning_rate=3e-5", *steps) == step_text()


PACKING = "--config.corpus.packing=True"
SHARED = "--config.task.texts_per_row=2"
LEFT_TO_RIGHT = "--config.task.objective=ltr"


@pytest.mark.parametrize(
    ("name", "more"),
    [
        *((name, ()) for name in ("squad", "swag", "ner", "text", "stsb")),
        ("text_multilabel", (SHARED,)),
        ("pretraining_jsonl", ()),
        ("pretraining", (PACKING,)),
        ("pretraining", (LEFT_TO_RIGHT,)),
        ("pretraining", (LEFT_TO_RIGHT, PACKING)),
    ],
)
def test_columns_are_those_of_a_batch(name, more, tmp_path, monkeypatch):
    write_inputs(name, tmp_path)
    monkeypatch.chdir(tmp_path)
    padded = (
        () if name.startswith("pretraining") else ("--config.task.pad_to_max=True",)
    )
    task = tasks.create_task(configuration.load_config("in/micro.py", [*padded, *more]))
    task.resolve()
    task.training_data()
    for phase in task.phases():
        batch = next(task.batches(phase.first_step, slice(None), 0))
        planned = programs.columns(task, phase)
        assert {k: (leaf.shape, leaf.dtype) for k, leaf in planned.items()} == {
            name: (np.shape(rows), rows.dtype) for name, rows in batch.items()
        }
