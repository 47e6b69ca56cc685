"""Weights by their name on a Hub: downloaded, cached, offline, interrupted, refused."""

import json
import shutil

import pytest
from huggingface_hub import constants

import bert_jax
from bert_jax.convert import weights
from bert_jax.runtime import hub
from tests.micro import error_line
from tests.runs import here, run

NAME = "people/small-bert"


@pytest.fixture(scope="module")
def exported(plain, tmp_path_factory):
    """A Hugging Face folder: a file's name -> its content."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    here(f"--workdir={plain}", "--mode=export", f"--output={folder}")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def gets(fake, name):
    return sum(name in path for method, path in fake.requests if method == "GET")


@pytest.mark.slow
def test_run_starts_from_a_name(fake_hub, exported, micro, plain, tmp_path):
    fake_hub.models[NAME] = {"main": {**exported, "pytorch_model.bin": b"not read"}}
    start = (f"--config.init_from=hf:{NAME}", "--config.train.num_steps=2")
    _, err = run(micro, tmp_path / "run", *start)
    assert f"from hf:{NAME}:" in err
    source = json.loads((tmp_path / "run" / "init_from.json").read_text())["source"]
    assert source == f"hf:{NAME}@{fake_hub.commit(NAME, 'main')}"
    assert not gets(fake_hub, "pytorch_model.bin")
    # It resumes without the Hub and without the cache.
    del fake_hub.models[NAME]
    shutil.rmtree(tmp_path / "cache")
    hub.download_snapshot.cache_clear()
    run(micro, tmp_path / "run", *start)
    fake_hub.models[NAME] = {"main": exported}
    ids, mask = [[2, 7, 4, 3]], [[1] * 4]
    mine, theirs = (
        bert_jax.load(path).apply(ids, mask, [[0] * 4])["masked_lm_logits"]
        for path in (f"hf:{NAME}", plain)
    )
    assert (mine == theirs).all()


@pytest.mark.slow
def test_second_start_reads_the_cache_and_needs_no_network(
    fake_hub, exported, monkeypatch
):
    fake_hub.models[NAME] = {"main": exported}
    first = weights.read_weights(f"hf:{NAME}")
    assert gets(fake_hub, "model.safetensors") == 1
    hub.download_snapshot.cache_clear()
    weights.read_weights(f"hf:{NAME}")
    assert gets(fake_hub, "model.safetensors") == 1
    fake_hub.refused[NAME] = "RepoNotFound"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.download_snapshot.cache_clear()
    assert weights.read_weights(f"hf:{NAME}").config == first.config
    # The cache's own folder, which is full of links, may be named as well.
    assert weights.read_weights(hub.model_folder(f"hf:{NAME}")).config == first.config


@pytest.mark.slow
def test_revision_is_kept(fake_hub, exported):
    config = json.loads(exported["config.json"])
    other = {**exported, "config.json": json.dumps({**config, "x": 1}).encode()}
    fake_hub.models[NAME] = {"main": exported, "old": other}
    for name, expected in (("", "main"), ("@old", "old")):
        found = hub.model_folder(f"hf:{NAME}{name}")
        assert ("x" in json.loads((found / "config.json").read_text())) == bool(name)
        commit = fake_hub.commit(NAME, expected)
        assert hub.resolve_revision(f"hf:{NAME}{name}") == f"hf:{NAME}@{commit}"
        assert hub.model_folder(f"hf:{NAME}@{commit}") == found


@pytest.mark.slow
def test_other_weights_are_downloaded_where_no_safetensors_are(fake_hub, exported):
    files = {name: x for name, x in exported.items() if name != "model.safetensors"}
    files |= {"pytorch_model.bin": b"weights", "tf_model.h5": b"not wanted"}
    fake_hub.models[NAME] = {"main": files}
    folder = hub.model_folder(f"hf:{NAME}")
    assert (folder / "pytorch_model.bin").read_bytes() == b"weights"
    assert not gets(fake_hub, "tf_model.h5")
    assert "pytorch_model.bin: " in error_line(weights.read_weights, f"hf:{NAME}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "offline", "said"),
    [
        ("hf:bert", False, "OWNER/NAME"),
        ("hf:people--x/none", False, "Cannot have --"),
        ("hf:people/none", False, "Repository Not Found"),
        (f"hf:{NAME}@never", False, "no such branch, tag or commit"),
        ("hf:people/closed", False, "gated repo"),
        (f"hf:{NAME}", True, "not in the cache"),
    ],
)
def test_hub_folder_that_cannot_be_had_is_one_line(
    fake_hub, exported, monkeypatch, name, offline, said
):
    for known in (NAME, "people/closed"):
        fake_hub.models[known] = {"main": exported}
    fake_hub.refused["people/closed"] = "GatedRepo"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    line = error_line(hub.model_folder, name)
    assert name in line and said in line


def test_weights_of_the_package_are_found_from_any_folder(tmp_path, monkeypatch):
    """Unless the folder has one of that name."""
    monkeypatch.chdir(tmp_path)
    assert (hub.model_folder("mini") / "model.safetensors").is_file()
    (tmp_path / "mini").mkdir()
    assert str(hub.model_folder("mini")) == "mini"
