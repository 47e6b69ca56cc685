"""Fine-tuning runs that stop early or collapse. Killed runs: gates/gates_test.py."""

import json
import signal

import numpy as np
import pytest

from bert_jax.training.log import Log
from bert_jax.workdir import metrics
from bert_jax.workdir.checkpoint import Checkpoints
from tests.reviews import predictions, run, write_reviews
from tests.runs import here


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_reviews(tmp_path_factory.mktemp("reviews"))


NO_LEARNING = "--config.optimizer.learning_rate=0.0"


@pytest.mark.slow
def test_early_stop_without_progress_and_the_best_is_kept(folder, tmp_path):
    args = (NO_LEARNING, "--config.train.eval_every=4", "--config.train.early_stop=2")
    best = "--config.evaluate.checkpoint=best"
    _, err = run(folder, tmp_path / "run", *args, best)
    stopped = "early stop at step 10: 2 evaluations no better than step 4's"
    assert f"{stopped}; the result is that of step 4\n" in err and "COLLAPSED" in err
    steps = [line["step"] for line in metrics.read_metrics(tmp_path / "run", "dev")]
    assert steps == [4, 8, 10]
    assert [path.name for path in (tmp_path / "run" / "best").iterdir()] == ["4"]
    before = predictions(tmp_path / "run")
    out, _ = run(folder, tmp_path / "run", *args, best)
    assert "dev at step 4" in out
    assert predictions(tmp_path / "run") == before
    out, _ = run(folder, tmp_path / "run", *args, best, "--mode=evaluate")
    assert json.loads(out)["step"] == 4


@pytest.mark.slow
@pytest.mark.parametrize(("last", "fitted"), [(4, True), (5, False)])
def test_stopped_run_says_what_its_checkpoint_lacks(
    folder, tmp_path, monkeypatch, last, fitted
):
    count = Log.count

    def stop(self, step, *args):
        count(self, step, *args)
        if step == last + fitted:  # the evaluation at 4 is in the next step
            signal.raise_signal(signal.SIGTERM)

    workdir, lacks = tmp_path / "run", "has no fitted temperature, and 1 is used"
    args = ("--config.task.calibration=temperature", "--config.train.eval_every=4")
    args = (*args, "--config.evaluate.checkpoint=best") if fitted else args
    with monkeypatch.context() as patch:
        patch.setattr(Log, "count", stop)
        run(folder, workdir, *args, status=143)
    (tmp_path / "in.jsonl").write_text('{"text": "good"}\n')
    asks = ("--mode=predict", f"--input={tmp_path / 'in.jsonl'}")
    before, err = here(f"--workdir={workdir}", *asks)
    assert (lacks not in err) == fitted
    export = ("--mode=export", f"--output={tmp_path / 'to'}")
    _, err = here(f"--workdir={workdir}", *export)
    assert (lacks not in err) == fitted
    here(f"--workdir={workdir}", "--mode=evaluate")
    after, err = here(f"--workdir={workdir}", *asks)
    assert lacks not in err and (before == after) == fitted


@pytest.mark.slow
def test_best_is_by_a_score_of_ones_choice(folder, tmp_path):
    args = ("--config.train.eval_every=4", "--config.evaluate.checkpoint=best")
    chosen = (*args, "--config.evaluate.score=f1:bad")
    _, err = run(folder, tmp_path / "run", *chosen)
    assert "step 4 dev: f1:bad " in err
    dev = metrics.read_metrics(tmp_path / "run", "dev")
    assert {"accuracy", "macro_f1", "f1:bad", "f1:good"} <= dev[0].keys()
    (best,) = (tmp_path / "run" / "best").iterdir()
    assert int(best.name) == max(dev, key=lambda line: line["f1:bad"])["step"]
    # What is kept is the best by that score: another one needs another run.
    _, err = run(folder, tmp_path / "run", *args, status=2)
    assert "evaluate.score ('f1:bad' there, '' now)" in err
    wrong = "--config.evaluate.score=f1:awful"
    _, err = run(folder, tmp_path / "wrong", *args, wrong, status=2)
    assert err.splitlines()[-1] == (
        "error: config.evaluate.score=f1:awful: not reported on dev; choose one of "
        "accuracy, f1, matthews, macro_f1, average_precision, roc_auc, f1:bad, f1:good"
    )
    assert not (tmp_path / "wrong" / "config.json").exists()  # before it begins


@pytest.mark.slow
def test_best_of_an_attempt_that_died_before_it_saved_is_dropped(folder, tmp_path):
    """Its steps come again, and a file kept under one of them is another attempt's:
    before the first checkpoint, and after the one that the run resumes from."""
    workdir = tmp_path / "run"
    for late in (10, 25):
        with Checkpoints(workdir, 1, "best") as best:
            best.save({"params": {"another": np.zeros(3)}}, late)
            best.wait()
        args = (NO_LEARNING, "--config.evaluate.checkpoint=best")
        out, _ = run(folder, workdir, *args)
        assert ("dev at step 10" in out) == (late == 10)
        kept = ["10"] if late == 10 else []  # 25 took its place
        assert [path.name for path in (workdir / "best").iterdir()] == kept
