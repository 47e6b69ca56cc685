"""A run that begins with another run's state (`train.branch_from`)."""

import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.workdir import metrics
from tests.runs import here, run, saved

SAVES = ("--config.checkpoint.save_every=10", "--config.checkpoint.keep_every=10")


@pytest.fixture(scope="module")
def parent(micro, tmp_path_factory):
    """A run of twenty steps, whose steps 10 and 20 are kept."""
    workdir = tmp_path_factory.mktemp("parent") / "run"
    run(micro, workdir, *SAVES)
    return workdir


def losses(workdir):
    """Returns the loss of each step, by its number."""
    return {x["step"]: x["loss"] for x in metrics.read_metrics(workdir, "train")}


def state(workdir, step):
    """Returns the arrays of a checkpoint."""
    trees = saved(workdir, step, "params", "opt_state", "running_stats")
    return jax.tree.leaves(trees)


def same(one, other):
    return all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))


def test_a_branch_that_changes_nothing_continues_to_the_bit(micro, parent, tmp_path):
    _, err = run(micro, tmp_path, *SAVES, f"--config.train.branch_from={parent}@10")
    assert f"from the state of {parent}, at step 10" in err
    late = {step: loss for step, loss in losses(parent).items() if step > 10}
    assert losses(tmp_path) == late
    assert same(state(tmp_path, 20), state(parent, 20))


def test_a_branch_needs_no_config_file_and_has_another_schedule(parent, tmp_path):
    longer = ("--config.train.num_steps=24", "--config.optimizer.learning_rate=1e-5")
    here(f"--workdir={tmp_path}", f"--config.train.branch_from={parent}", *longer)
    lines = metrics.read_metrics(tmp_path, "train")
    assert [line["step"] for line in lines] == [21, 22, 23, 24]
    assert lines[-1]["learning_rate"] == pytest.approx(1e-5 / 24, rel=1e-6)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["train"]["branch_from"] == str(parent)
    # The same command continues, also without the other run.
    here(f"--workdir={tmp_path}")


@pytest.mark.slow
def test_a_branch_from_zero_has_the_data_from_the_start(micro, parent, tmp_path):
    more = ("--config.train.branch_step=zero", "--config.train.num_steps=3")
    path = parent / "checkpoints" / "10"
    run(micro, tmp_path, f"--config.train.branch_from={path}", *more)
    first, there = losses(tmp_path), losses(parent)
    assert [*first] == [1, 2, 3]
    # The batch is the first one, and the parameters are those of step 10.
    assert first[1] != there[11]
    assert abs(first[1] - there[11]) < abs(first[1] - there[1])


@pytest.mark.slow
def test_a_branch_may_have_other_data_of_the_same_text(micro, parent, tmp_path):
    branch = f"--config.train.branch_from={parent}@10"
    more = ("--config.corpus.short_seq_prob=0.9", "--config.corpus.dev_fraction=0.4")
    run(micro, tmp_path, branch, *more)
    assert min(losses(tmp_path)) == 11
    data = json.loads((tmp_path / "data.json").read_text())
    assert data["folders"] != json.loads((parent / "data.json").read_text())["folders"]


@pytest.mark.slow
def test_a_branch_of_a_branch_has_its_own_start(micro, parent, tmp_path):
    zero = ("--config.train.branch_step=zero", "--config.train.num_steps=4")
    run(micro, tmp_path / "one", f"--config.train.branch_from={parent}@10", *zero)
    again = (f"--config.train.branch_from={tmp_path / 'one'}",)
    here(f"--workdir={tmp_path / 'two'}", *again, "--config.train.num_steps=6")
    assert [*losses(tmp_path / "two")] == [5, 6]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (["train.branch_from={parent}@11"], ["no such step", "10", "20"]),
        (["train.branch_from={parent}/none"], ["has no checkpoint", "RUN@STEP"]),
        (["train.branch_from={parent}"], ["train.num_steps=20", "at step 20"]),
        (
            ["train.branch_from={parent}@10", "optimizer.name=lamb"],
            ["optimizer.name='lamb'", "has 'adamw'", "--config.init_from="],
        ),
        (
            ["train.branch_from={parent}@10", "model.hidden_size=64"],
            ["model.hidden_size=64", "{parent}", "must use the model's value"],
        ),
        (["train.branch_from={parent}@10", "train.seeds=2"], ["train.seeds=2"]),
        (
            ["train.branch_from={parent}@10", "model.scan_layers=True"],
            ["model.scan_layers=True"],
        ),
    ],
)
def test_a_branch_that_does_not_fit_is_one_line(micro, parent, tmp_path, fields, words):
    flags = [f"--config.{field.format(parent=parent)}" for field in fields]
    _, err = run(micro, tmp_path / "run", *flags, status=2)
    assert not (tmp_path / "run").exists() or not any(
        path.name == "config.json" for path in (tmp_path / "run").iterdir()
    )
    (line,) = [line for line in err.splitlines() if line.startswith("error:")]
    assert all(word.format(parent=parent) in line for word in words)


@pytest.mark.slow
def test_decays_of_one_run_as_the_page_has_them(micro, parent, tmp_path):
    """Each begins to decay where it begins, and ends near 0."""
    page = Path(__file__).resolve().parents[2] / "docs" / "runs.md"
    (text,) = re.findall(r"```python\n# decay\.py\n(.*?)```", page.read_text(), re.S)
    text = text.replace('"base"', repr(micro)).replace("runs/stable", str(parent))
    (tmp_path / "decay.py").write_text(text)
    for step in (10, 20):
        folder = tmp_path / str(step)
        run(f"{tmp_path / 'decay.py'}:step={step}", folder)
        lines = metrics.read_metrics(folder, "train")
        assert [x["step"] for x in lines] == [*range(step + 1, step * 11 // 10 + 1)]
        peak = json.loads((folder / "config.json").read_text())["optimizer"]
        passed = np.arange(len(lines)) / len(lines)
        expected = peak["learning_rate"] * (1 - np.sqrt(passed))
        found = [x["learning_rate"] for x in lines]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-9)
