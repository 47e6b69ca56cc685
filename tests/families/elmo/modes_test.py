"""ELMo's own program: trained, queried, exported. Stops, devices: contract_test.py."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_jax.families.elmo import __main__ as program
from bert_jax.families.elmo import loading as elmo
from bert_jax.families.elmo import model as models
from bert_jax.workdir import metrics
from bert_jax.workdir.checkpoint import Checkpoints
from tests import contract_runs
from tests.close import assert_close
from tests.micro import write_rows
from tests.runs import here, losses, refused

ONE = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])


def ask(*arguments):
    return here(*arguments, program=program.run)


@pytest.fixture(scope="module")
def trained(corpus, once):
    """A config file, and a finished run on one device: (file, folder)."""
    config, _, workdir, out = contract_runs.elmo(once, corpus)
    assert "LM perplexity" in out
    return config, workdir


@pytest.mark.slow
def test_elmo_learns(trained):
    _, workdir = trained
    found = losses(workdir)
    assert len(found) == 20 and found[-5:].mean() < found[:5].mean()
    (dev,) = metrics.read_metrics(workdir, "dev")
    both = dev["forward_loss"] + dev["backward_loss"]
    assert dev["lm_loss"] == dev["loss"] == pytest.approx(both / 2, rel=1e-6)
    assert dev["perplexity"] == pytest.approx(np.exp(dev["loss"]))


def test_elmo_export_has_the_models_vectors(trained, tmp_path):
    pytest.importorskip("h5py", reason="needs the elmo extra")
    _, workdir = trained
    command = (f"--workdir={workdir}", "--mode=export", f"--output={tmp_path / 'out'}")
    ask(*command)
    model = elmo.load(tmp_path / "out")
    assert (tmp_path / "out" / "vocab.txt").read_text().startswith("<S>\n</S>\n<UNK>\n")
    (found,) = model.encode([["the", "quick", "cats"]])
    with Checkpoints(workdir, None) as checkpoints:
        params, _ = checkpoints.restore_params(ONE)
    sentences = [["the", "quick", "cats"]]
    ids = jnp.asarray(elmo.characters.encode_sentences(sentences, 8))
    module = models.Elmo(model.config)
    layers, _ = module.apply({"params": params["elmo"]}, ids, method="layers")
    assert_close(found, layers[0, :, 1:4])
    assert "is not empty" in refused(*command, program=program.run)


def test_run_s_vectors_are_those_of_python(trained, tmp_path):
    """For texts and for words, without an export. `mean` is their mean."""
    _, workdir = trained
    texts = ["the quick cats", "a dog", "the quick brown fox jumps"]
    rows = [{"text": text} for text in texts] + [{"words": ["quick", "dog"]}]
    given = [f"--workdir={workdir}", "--mode=extract", "--config.predict.layers=(0,-1)"]
    given.append(f"--input={write_rows(tmp_path / 'rows.jsonl', rows)}")
    given.append("--config.predict.batch_size=3")
    found = {}
    for vectors in ("words", "mean"):
        path = tmp_path / f"{vectors}.jsonl"
        ask(*given, f"--config.predict.vectors={vectors}", f"--output={path}")
        found[vectors] = path.read_text()
    model = elmo.load(workdir)
    expected = model.encode([*map(str.split, texts), ["quick", "dog"]])
    pairs = zip(*(text.splitlines() for text in found.values()), strict=True)
    for (line, mean), layers in zip(pairs, expected, strict=True):
        features = json.loads(line)["features"]
        assert len(features) == layers.shape[1]
        for place, feature in enumerate(features):
            for one, layer in zip(feature["layers"], (0, -1), strict=True):
                assert_close(one["values"], layers[layer, place])
        (feature,) = json.loads(mean)["features"]
        values = [one["values"] for one in feature["layers"]]
        assert_close(values, layers[[0, -1]].mean(1))
    assert json.loads(found["words"].splitlines()[1])["features"][0]["token"] == "a"


def test_a_run_is_evaluated_as_at_its_end(trained):
    _, workdir = trained
    out, _ = ask(f"--workdir={workdir}", "--mode=evaluate")
    (dev,) = metrics.read_metrics(workdir, "dev")
    assert json.loads(out)["perplexity"] == dev["perplexity"]


def test_released_files_have_the_vectors_of_python(trained, tmp_path):
    pytest.importorskip("h5py", reason="needs the elmo extra")
    _, workdir = trained
    ask(f"--workdir={workdir}", "--mode=export", f"--output={tmp_path / 'out'}")
    (tmp_path / "rows.jsonl").write_text('{"text": "Quick, dog"}')
    vectors = tmp_path / "vectors.safetensors"
    given = [f"--workdir={tmp_path / 'out'}", "--mode=extract", f"--output={vectors}"]
    ask(*given, f"--input={tmp_path / 'rows.jsonl'}", "--config.predict.layers=(-1,)")
    (expected,) = elmo.load(workdir).encode([["Quick", ",", "dog"]])
    np.testing.assert_array_equal(load_file(vectors)["vectors"][:, 0], expected[-1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode=predict"], "an ELMo has train, prepare, evaluate, extract, export"),
        (["--mode=export", "--onnx=int8"], "an ELMo has no ONNX graph"),
        (["--mode=extract", "--config.predict.vectors=cls"], "reads whole words"),
        (["--config.train.micro_batches=2"], "takes its state from step to step"),
    ],
)
def test_what_an_elmo_refuses(trained, arguments, message):
    config, workdir = trained
    given = [f"--workdir={workdir}", *arguments]
    given += [f"--config={config}"] if len(arguments) == 1 else ["--input=/dev/null"]
    assert message in refused(*given, program=program.run)


def test_config_of_the_other_program_is_refused(trained, tmp_path):
    config, _ = trained
    line = refused(f"--config={config}", f"--workdir={tmp_path / 'run'}")
    assert "python -m bert_jax.families.elmo" in line
    line = refused("--config=tiny", "--workdir=none", program=program.run)
    assert "is of the task 'pretraining', which python -m bert_jax.main runs" in line
