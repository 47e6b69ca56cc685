"""RUN/checkpoints/STEP as weights: a step among those that a run has kept."""

import json
import shutil

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.convert import weights
from bert_jax.workdir.checkpoint import Checkpoints
from tests.micro import error_line, write_rows
from tests.runs import here, refused

ONE = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])


def embeddings(params):
    return np.asarray(params["bert"]["embeddings"]["word_embeddings"]["embedding"])


def test_kept_steps_have_their_own_weights(plain):
    with Checkpoints(plain, None, only=10) as checkpoints:
        params, step = checkpoints.restore_params(ONE)
    assert step == 10
    first = weights.read_weights(plain / "checkpoints" / "10")
    last = weights.read_weights(plain / "checkpoints" / "20")
    np.testing.assert_array_equal(embeddings(first.params), embeddings(params))
    assert not np.array_equal(embeddings(first.params), embeddings(last.params))
    whole = weights.read_weights(plain)
    np.testing.assert_array_equal(embeddings(whole.params), embeddings(last.params))
    path = plain / "checkpoints" / "10"
    assert weights.find_source(path).shape() == weights.find_source(plain).shape()
    assert (
        weights.find_source(path).run_config()
        == weights.find_source(plain).run_config()
    )
    one, other = (bert_jax.load(each).tokenizer.to_str() for each in (path, plain))
    assert one == other


@pytest.mark.slow
def test_run_starts_from_it(plain, tmp_path):
    rows = [{"text": f"the {w} fox", "label": w} for w in ("cats", "watch") * 8]
    data = write_rows(tmp_path / "data.jsonl", rows)
    fields = (
        "--config=configs/finetune/text.py:recipe=tiny",
        f"--config.task.train_file={data}",
        f"--config.task.dev_file={data}",
        "--config.task.max_seq_length=16",
        "--config.train.num_steps=1",
    )
    source = plain / "checkpoints" / "10"
    here(*fields, f"--workdir={tmp_path / 'run'}", f"--config.init_from={source}")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["init_from"] == str(source)
    assert config["model"]["hidden_size"] == 32
    wrong = f"--config.init_from={plain / 'checkpoints' / '15'}"
    line = refused(*fields, f"--workdir={tmp_path / 'none'}", wrong)
    assert "15: no such step; it has [10, 20]" in line


@pytest.mark.slow
def test_step_that_is_not_there_or_damaged(plain, tmp_path):
    line = error_line(weights.read_weights, plain / "checkpoints" / "7")
    assert "no such step; it has [10, 20]" in line
    run = tmp_path / "run"
    shutil.copytree(plain, run)
    for path in (run / "checkpoints" / "10" / "params").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    line = error_line(weights.read_weights, run / "checkpoints" / "10")
    assert "no checkpoint can be read" in line
    assert (run / "checkpoints" / "10").is_dir()  # another run's is left as it is
