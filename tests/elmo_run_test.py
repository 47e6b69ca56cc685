"""ELMo through main: trained, killed and resumed, on eight devices, exported."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from runs import finish, here, losses, run, run_killed, start

from bert_jax import elmo, main
from bert_jax.models import elmo as models
from bert_jax.workdir import metrics
from bert_jax.workdir.checkpoint import Checkpoints

ONE = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
CONFIG = """
extends = "elmo:size=tiny"

def get_config(config):
    config.model.hidden_size, config.model.intermediate_size = 8, 12
    config.task.filters = ("1:4", "2:6")
    config.task.max_characters = 8
    config.task.unroll = 6
    config.task.samples = 6
    config.tokenizer.vocab_size = 14
    config.corpus.sources = ("sentences:CORPUS",)
    config.corpus.data_dir = "DATA"
    config.corpus.dev_fraction = 0.2
    config.train.num_steps = 20
    config.train.batch_size = 16
    config.train.log_every = 1
    config.train.eval_every = 0
    config.checkpoint.save_every = 5
    config.evaluate.batch_size = 16
    return config
"""


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """A config file, and a finished run on one device: (file, folder)."""
    folder = tmp_path_factory.mktemp("elmo")
    text = CONFIG.replace("CORPUS", str(corpus)).replace("DATA", str(folder / "data"))
    (folder / "small.py").write_text(text)
    config = str(folder / "small.py")
    out, _ = finish(start(f"--config={config}", f"--workdir={folder / 'run'}"))
    assert "LM perplexity" in out and "--mode=export" in out
    assert "--mode=predict" not in out
    return config, folder / "run"


def saved(workdir):
    """Everything in the last checkpoint."""
    with Checkpoints.of_another(workdir) as checkpoints:
        step = checkpoints.latest_step()
    import orbax.checkpoint as ocp

    folder = workdir / "checkpoints" / str(step)
    found = {}
    for name in ("params", "opt_state", "carry"):
        handler = ocp.StandardCheckpointer()
        found[name] = handler.restore(folder / name)
    return step, found


def test_it_learns(trained):
    _, workdir = trained
    found = losses(workdir)
    assert len(found) == 20 and found[-5:].mean() < found[:5].mean()
    (dev,) = metrics.read(workdir, "dev")
    both = dev["forward_loss"] + dev["backward_loss"]
    assert dev["lm_loss"] == dev["loss"] == pytest.approx(both / 2, rel=1e-6)
    assert dev["perplexity"] == pytest.approx(np.exp(dev["loss"]))


@pytest.mark.heart
def test_killed_and_resumed_it_is_the_same_to_the_last_bit(trained, tmp_path):
    config, straight = trained
    run_killed("bert_jax.tasks.elmo:Elmo", config, tmp_path / "run")
    assert not metrics.read(tmp_path / "run", "dev")
    _, err = finish(start(f"--config={config}", f"--workdir={tmp_path / 'run'}"))
    assert "resuming at step 10 of 20" in err
    np.testing.assert_array_equal(losses(tmp_path / "run"), losses(straight))
    assert (
        metrics.read(tmp_path / "run", "dev")[-1]["loss"]
        == (metrics.read(straight, "dev")[-1]["loss"])
    )
    (step, ours), (same, theirs) = saved(tmp_path / "run"), saved(straight)
    assert step == same == 20
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    assert np.abs(ours["carry"]["cell_1"]).max() > 0
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_eight_devices_give_the_losses_of_one(trained, tmp_path):
    config, straight = trained
    run(config, tmp_path / "run")
    np.testing.assert_allclose(losses(tmp_path / "run"), losses(straight), rtol=1e-4)
    split = ("--config.mesh.data=2", "--config.mesh.fsdp=2", "--config.mesh.tensor=2")
    run(config, tmp_path / "mesh", *split)
    np.testing.assert_allclose(losses(tmp_path / "mesh"), losses(straight), rtol=1e-4)


def test_a_finished_run_is_evaluated(trained):
    _, workdir = trained
    out, _ = here(f"--workdir={workdir}", "--mode=evaluate")
    (dev,) = metrics.read(workdir, "dev")
    found = json.loads(out.splitlines()[-1])
    assert found["step"] == 20
    for name in ("loss", "forward_loss", "unigram_loss", "lm_accuracy"):
        assert found[name] == pytest.approx(dev[name], rel=1e-5)


def test_it_is_described(trained, tmp_path):
    config, _ = trained
    target = tmp_path / "facts.json"
    here(f"--config={config}", "--mode=describe", f"--output={target}")
    facts = json.loads(target.read_text())
    assert facts["parameters_with_heads"] - facts["parameters"] == 14 * 9
    assert facts["flops_per_step"] > 0


@pytest.mark.heart
def test_it_is_exported_and_its_vectors_are_the_models(trained, tmp_path):
    pytest.importorskip("h5py", reason="needs the elmo extra")
    _, workdir = trained
    command = (f"--workdir={workdir}", "--mode=export", f"--output={tmp_path / 'out'}")
    here(*command)
    model = elmo.load(tmp_path / "out")
    assert (tmp_path / "out" / "vocab.txt").read_text().startswith("<S>\n</S>\n<UNK>\n")
    (found,) = model.encode([["the", "quick", "cats"]])
    with Checkpoints.of_another(workdir) as checkpoints:
        params, _ = checkpoints.restore_saved(ONE)
    sentences = [["the", "quick", "cats"]]
    ids = jnp.asarray(elmo.characters.of_sentences(sentences, 8))
    module = models.Elmo(model.config)
    layers, _ = module.apply({"params": params["elmo"]}, ids, method="layers")
    np.testing.assert_allclose(found, layers[0, :, 1:4], atol=1e-6)
    _, error = here(*command, status=2)
    assert "is not empty" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mode=predict", "--input=FILE"), "bert_jax.elmo.load"),
        (("--mode=extract", "--input=FILE"), "bert_jax.elmo.load"),
        (("--mode=export", "--output=out", "--push=hf:me/mine"), "--output only"),
        (("--config.task.unroll=7",), "task.unroll (6 there, 7 now)"),
    ],
)
def test_what_it_refuses_is_one_line(
    trained, tmp_path, monkeypatch, arguments, message
):
    config, workdir = trained
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.txt").write_text("the quick cats\n")
    arguments = [a.replace("FILE", "rows.txt") for a in arguments]
    given = [f"--workdir={workdir}", *arguments]
    if "mode" not in arguments[0]:
        given.append(f"--config={config}")
    if "--push" in arguments[-1]:
        monkeypatch.setattr("bert_jax.runtime.hub.check_new", lambda name: None)
    _, error = here(*given, status=2)
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_larger_than_the_text(trained, tmp_path):
    config, _ = trained
    large = "--config.tokenizer.vocab_size=1000"
    _, error = run(config, tmp_path / "run", large, status=2)
    assert "the text has 18 distinct words" in error and error.count("\n") == 1


def test_a_file_of_ours_does_not_open_as_bert(trained, tmp_path, capsys):
    (tmp_path / "options.json").write_text("{}")
    command = ["--mode=export", f"--config.init_from={tmp_path}", "--output=x"]
    assert main.main([*command, f"--workdir={tmp_path / 'none'}"]) == 2
    assert "ELMo's weights; bert_jax.elmo.load opens them" in capsys.readouterr().err
