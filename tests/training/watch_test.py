"""What a run logs beside its losses, against the checkpoints around the step."""

import json

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bert_jax.registry import WATCHERS
from bert_jax.training.watch import Watcher
from bert_jax.workdir import metrics
from tests.runs import run, saved

SHORT = (
    *("--config.train.num_steps=4", "--config.train.watch=2"),
    *("--config.checkpoint.save_every=1", "--config.checkpoint.keep_every=1"),
)


def params(workdir, step):
    return flatten_dict(saved(workdir, step, "params")["params"], sep="/")


@pytest.mark.parametrize("scan", [pytest.param(False, marks=pytest.mark.slow), True])
def test_norms_are_those_of_the_checkpoints(micro, tmp_path, scan):
    run(micro, tmp_path, *SHORT, f"--config.model.scan_layers={scan}")
    first, second = metrics.read_metrics(tmp_path, "watch")
    assert (first["step"], second["step"]) == (2, 4)
    before, after = params(tmp_path, 3), params(tmp_path, 4)
    names = {name.removeprefix("param_norm/") for name in second if "param_" in name}
    shown = {
        name.replace("encoder/layers/", "encoder/layer_0/"): name for name in before
    }
    assert names == {*shown}
    for name, path in shown.items():
        norm = np.linalg.norm(before[path])
        assert second[f"param_norm/{name}"] == pytest.approx(norm, rel=1e-5)
        update = np.linalg.norm(after[path] - before[path])
        assert second[f"update_norm/{name}"] == pytest.approx(
            update, rel=2e-3, abs=1e-6
        )
    squares = [x**2 for name, x in second.items() if name.startswith("grad_norm/")]
    whole = metrics.read_metrics(tmp_path, "train")[-1]["grad_norm"]
    assert np.sqrt(sum(squares)) == pytest.approx(whole, rel=1e-5)


def test_watching_changes_no_number(micro, plain, tmp_path):
    run(micro, tmp_path, "--config.train.watch=3")
    for split in ("train", "dev"):
        one, other = (metrics.read_metrics(x, split) for x in (plain, tmp_path))
        assert [x["loss"] for x in one] == [x["loss"] for x in other]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 2])
def test_a_function_sees_state_batch_and_metrics(micro, tmp_path, monkeypatch, seeds):
    def after(state, batch, numbers):
        return {
            "seen_step": state.step,
            "tokens": batch["input_mask"].sum(axis=(-1, -2)),
            "twice": 2 * numbers["loss"],
        }

    monkeypatch.setitem(WATCHERS, "mine", Watcher(after_step=after))
    few = (*SHORT, "--config.train.watchers=('mine',)", f"--config.train.seeds={seeds}")
    run(micro, tmp_path, *few)
    seed_0 = tmp_path / "seed_0" if seeds > 1 else tmp_path
    losses = {x["step"]: x["loss"] for x in metrics.read_metrics(seed_0, "train")}
    for line in metrics.read_metrics(seed_0, "watch"):
        assert line["seen_step"] == line["step"]
        assert line["tokens"] > 0
        assert line["twice"] == pytest.approx(2 * losses[line["step"]], rel=1e-6)
    assert json.dumps(line)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"step": 1}, "named 'step'"),
        ({"grad_norm/masked_lm/bias": 1}, "named 'grad_norm/masked_lm/bias'"),
        ({"mine": np.ones(3)}, r"mine has the shape (3,)"),
    ],
)
def test_a_number_that_has_no_place_is_one_line(
    micro, tmp_path, monkeypatch, found, words
):
    monkeypatch.setitem(WATCHERS, "mine", Watcher(after_step=lambda *_: found))
    few = (*SHORT, "--config.train.watchers=('norms','mine')")
    _, err = run(micro, tmp_path, *few, status=2)
    assert words in err.splitlines()[-1]
