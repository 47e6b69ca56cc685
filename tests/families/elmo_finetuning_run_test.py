"""ELMo's systems through main: trained, queried. Steps, batches: contract_test.py."""

import json

import flax.linen as nn
import jax
import numpy as np
import pytest
from runs import here, losses, run, write_pairs

from bert_jax.families.elmo import model as elmo
from bert_jax.families.elmo import released
from bert_jax.families.elmo.config import ElmoConfig
from bert_jax.workdir import metrics
from bert_jax.workdir.checkpoint import Checkpoints

SIZES = ElmoConfig(
    vocab_size=1,
    hidden_size=8,
    intermediate_size=12,
    filters=((1, 6), (2, 10)),
    max_characters=10,
    dropout=0.1,
)
CONFIG = """
extends = "finetune/text:recipe=tiny,model=elmo"

def get_config(config):
    config.init_from = "FOLDER/elmo"
    config.task.train_file = "FOLDER/train.jsonl"
    config.task.dev_file = "FOLDER/dev.jsonl"
    config.task.max_seq_length = 32
    config.task.lstm_size, config.task.classifier_size = 8, 8
    config.optimizer.learning_rate = 1e-2
    config.task.elmo_dropout = config.task.dropout = 0.0
    config.train.num_steps = 60
    config.train.batch_size = 16
    config.train.log_every = 1
    config.evaluate.batch_size = 16
    config.train.eval_every = 60
    config.checkpoint.save_every = 60
    return config
"""
PAIRS = "--config.task.text_b=text_b"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An ELMo in the released layout, pairs of which a word decides, a config."""
    pytest.importorskip("h5py", reason="needs the elmo extra")
    folder = tmp_path_factory.mktemp("systems")
    (folder / "elmo").mkdir()
    ids = np.zeros((1, 1, SIZES.max_characters), np.int32)
    shapes = jax.eval_shape(elmo.Elmo(SIZES).init, jax.random.key(0), ids, ids)
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: rng.normal(size=x.shape).astype(np.float32),
        nn.meta.unbox(shapes)["params"],
    )
    released.write(folder / "elmo", SIZES, params, batch_size=1)
    write_pairs(folder, "FOX", "catsandcatsandcats")
    (folder / "own.py").write_text(CONFIG.replace("FOLDER", str(folder)))
    return folder


@pytest.fixture(scope="module")
def trained(folder):
    """Trains a run on pairs, with its output."""
    config, workdir = folder / "own.py", folder / "run"
    out, err = run(config, workdir, PAIRS)
    return workdir, out, err


def restored(workdir, name=""):
    one = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    with Checkpoints(workdir, None, name or "checkpoints") as checkpoints:
        found, step = checkpoints.restore_params(one)
    return jax.device_get(found), step


@pytest.mark.slow
def test_classifier_learns_and_elmo_stays(folder, trained):
    workdir, _, err = trained
    assert "words: read by their characters, cut at punctuation, cased" in err
    assert "distinct words of more than 8 bytes, cut: 1" in err
    assert losses(workdir).min() < 0.1 * losses(workdir)[0]
    assert max(line["accuracy"] for line in metrics.read_metrics(workdir, "dev")) > 0.9
    params, step = restored(workdir)
    _, before = released.read(folder / "elmo")
    jax.tree.map(np.testing.assert_array_equal, params["elmo"], before)
    assert step == 60 and np.abs(params["mix"]["weights"]).max() > 0
    config = json.loads((workdir / "config.json").read_text())
    assert config["optimizer"]["frozen"] == ["elmo"]
    assert config["model"]["hidden_size"] == 8
    assert config["task"]["filters"] == ["1:6", "2:10"]


@pytest.mark.slow
def test_predict_answers_as_evaluation(folder, trained, tmp_path):
    workdir, _, _ = trained
    out, _ = here(f"--workdir={workdir}", "--mode=evaluate")
    assert json.loads(out.splitlines()[-1])["accuracy"] == pytest.approx(
        metrics.read_metrics(workdir, "dev")[-1]["accuracy"]
    )
    target = tmp_path / "answers.jsonl"
    here(f"--workdir={workdir}", "--mode=predict", f"--output={target}",
         f"--input={folder / 'dev.jsonl'}")  # fmt: skip
    answers = [json.loads(line) for line in target.read_text().splitlines()]
    lines = (workdir / "predictions" / "dev.jsonl").read_text().splitlines()
    for answer, line in zip(answers, map(json.loads, lines), strict=True):
        assert answer["label"] == line["label"]
        for name, share in line["scores"].items():
            assert answer["scores"][name] == pytest.approx(share, abs=1e-5)


def test_elmo_finetuning_refuses_in_one_line(folder, tmp_path):
    dtype = "--config.model.dtype=bfloat16"
    _, error = run(folder / "own.py", tmp_path / "run", dtype, status=2)
    assert "an ELMo is float32" in error and error.count("\n") == 1, error
