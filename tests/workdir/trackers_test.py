"""Weights & Biases and MLflow: fake packages receive the data sent."""

import importlib.machinery
import json
import sys
import types

import pytest

from bert_jax.workdir import metrics, trackers
from bert_jax.workdir.trackers import Trackers
from tests.micro import error_line
from tests.runs import run

CONFIG = {"train.num_steps": 20, "optimizer.learning_rate": 1e-3}


class Service:
    """Remembers what each run of a service was sent."""

    def __init__(self):
        self.runs, self.ends = {}, {}

    def start(self, run):
        run = run or f"run{len(self.runs)}"
        self.runs.setdefault(run, [])
        return run

    def send(self, run, step, numbers):
        self.runs[run].append((step, dict(numbers)))


def installed(monkeypatch, name, **contents):
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__dict__.update(contents)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def wandb(monkeypatch):
    service = Service()

    class Run:
        def __init__(self, id, config, **settings):
            self.id, self.config = service.start(id), config
            assert settings["resume"] == "allow"

        def define_metric(self, name, step_metric):
            assert (name, step_metric) == ("*", "step")

        def log(self, numbers):
            numbers = dict(numbers)
            service.send(self.id, numbers.pop("step"), numbers)

        def finish(self, exit_code):
            service.ends[self.id] = exit_code

    installed(monkeypatch, "wandb", init=Run, Settings=dict)
    return service


@pytest.fixture
def mlflow(monkeypatch):
    service = Service()

    def start_run(run_id, run_name, nested):
        own = types.SimpleNamespace(run_id=service.start(run_id))
        return types.SimpleNamespace(info=own)

    def log_metrics(numbers, step, run_id):
        service.send(run_id, step, numbers)

    nothing = dict.fromkeys(("log_params", "end_run"), lambda *_: None)
    made = {"start_run": start_run, "log_metrics": log_metrics, **nothing}
    installed(monkeypatch, "mlflow", **made)
    return service


def test_resumed_run_goes_on_in_the_same_one(wandb, mlflow, tmp_path):
    for step in (1, 2):
        sent = Trackers(("wandb", "mlflow"), tmp_path, CONFIG)
        sent.write(step, "train", {"loss": 1.0})
        sent.close(step == 2)
    steps = [(1, {"train/loss": 1.0}), (2, {"train/loss": 1.0})]
    assert wandb.runs == mlflow.runs == {"run0": steps}
    assert wandb.ends == {"run0": 0}
    assert Trackers((), tmp_path, CONFIG).close(True) is None


def test_package_that_is_missing_is_one_line(monkeypatch):
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    line = error_line(trackers.require_package, ("mlflow",))
    assert "pip install '.[mlflow]'" in line
    trackers.require_package(())


@pytest.mark.slow
def test_run_sends_what_metrics_jsonl_has(wandb, micro, tmp_path):
    """Its lines are those of the file. A second start trains nothing, sends nothing."""
    folder, fields = tmp_path / "run", ["--config.train.trackers=('wandb',)"]
    fields += ["--config.train.num_steps=4", "--config.train.eval_every=2"]
    for _ in range(2):
        run(micro, folder, *fields)
    lines = {
        (line["step"], f"{split}/{name}"): value
        for split in ("train", "dev")
        for line in metrics.read_metrics(folder, split)
        for name, value in line.items()
        if name not in ("step", "time")
    }
    (sent,) = wandb.runs.values()
    found = {(step, name): v for step, numbers in sent for name, v in numbers.items()}
    assert found == lines and wandb.ends == {"run0": 0}
    assert json.loads((folder / "trackers.json").read_text()) == {"wandb": "run0"}
