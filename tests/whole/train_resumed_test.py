"""Runs that a signal stops: the step is saved, and the same command continues."""

import itertools
import signal

import pytest

from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training import inference
from bert_jax.workdir import metrics
from tests.runs import MESH, ZERO1, finish, losses, run, start, wait_for_lines


def test_signal_saves_the_step_and_the_run_resumes_elsewhere(
    micro, tmp_path, monkeypatch
):
    workdir = tmp_path / "run"
    many = "--config.train.num_steps=5000"
    process = start(f"--config={micro}", f"--workdir={workdir}", many)
    wait_for_lines(workdir, 3, process)
    process.send_signal(signal.SIGTERM)
    _, err = finish(process, 143)
    last = metrics.read_metrics(workdir, "train")[-1]["step"]
    saved = max(int(p.name) for p in (workdir / "checkpoints").iterdir())
    assert saved == last
    assert f"saved step {saved}" in err
    # On another mesh, with another number of devices and less memory on each.
    batches = Pretraining.batches

    def two(self, now, rows, seed):
        yield from itertools.islice(batches(self, now, rows, seed), 2)
        signal.raise_signal(signal.SIGTERM)
        yield from batches(self, now + 2, rows, seed)

    monkeypatch.setattr(Pretraining, "batches", two)
    less = (*ZERO1, "--config.model.remat=full")
    _, err = run(micro, workdir, many, *MESH, *less, status=143)
    assert f"resuming at step {saved} of 5000" in err
    assert len(losses(workdir)) == saved + 3  # the signal came before the third


@pytest.mark.slow
def test_signal_during_evaluation_saves_and_the_evaluation_is_made_up(
    micro, tmp_path, monkeypatch
):
    results = inference.Evaluator.results

    def signalled(self, *args):
        signal.raise_signal(signal.SIGINT)
        return results(self, *args)

    workdir, often = tmp_path / "run", "--config.train.eval_every=10"
    with monkeypatch.context() as patch:
        patch.setattr(inference.Evaluator, "results", signalled)
        _, err = run(micro, workdir, often, status=130)
    assert "saved step 10" in err
    assert metrics.read_metrics(workdir, "dev") == []
    run(micro, workdir, often)
    assert [line["step"] for line in metrics.read_metrics(workdir, "dev")] == [10, 20]
    assert len(losses(workdir)) == 20
