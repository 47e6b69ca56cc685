"""Weights by their name on a Hub: downloaded, cached, offline, interrupted, refused."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard, constants
from runs import here, run

import bert_jax
from bert_jax.convert import weights
from bert_jax.errors import UserError
from bert_jax.runtime import hub, hub_exchange
from bert_jax.workdir import metrics

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
def test_a_run_starts_from_a_name(fake_hub, exported, micro, plain, tmp_path):
    fake_hub.models[NAME] = {"main": {**exported, "pytorch_model.bin": b"not read"}}
    _, err = run(micro, tmp_path / "run", f"--config.init_from=hf:{NAME}")
    assert f"from hf:{NAME}:" in err
    source = json.loads((tmp_path / "run" / "init_from.json").read_text())["source"]
    assert source == f"hf:{NAME}@{fake_hub.commit(NAME, 'main')}"
    assert not gets(fake_hub, "pytorch_model.bin")
    # It resumes without the Hub and without the cache.
    del fake_hub.models[NAME]
    shutil.rmtree(tmp_path / "cache")
    hub.downloaded.cache_clear()
    command = (f"--config.init_from=hf:{NAME}", "--config.checkpoint.keep=2")
    run(micro, tmp_path / "run", *command)
    fake_hub.models[NAME] = {"main": exported}
    ids, mask = [[2, 7, 4, 3]], [[1] * 4]
    mine, theirs = (
        bert_jax.load(path).apply(ids, mask, [[0] * 4])["masked_lm_logits"]
        for path in (f"hf:{NAME}", plain)
    )
    assert (mine == theirs).all()


@pytest.mark.slow
def test_a_second_start_reads_the_cache_and_needs_no_network(
    fake_hub, exported, monkeypatch
):
    fake_hub.models[NAME] = {"main": exported}
    first = weights.read(f"hf:{NAME}")
    assert gets(fake_hub, "model.safetensors") == 1
    hub.downloaded.cache_clear()
    weights.read(f"hf:{NAME}")
    assert gets(fake_hub, "model.safetensors") == 1
    fake_hub.refused[NAME] = "RepoNotFound"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.downloaded.cache_clear()
    assert weights.read(f"hf:{NAME}").config == first.config
    # The cache's own folder, which is full of links, may be named as well.
    assert weights.read(hub.path(f"hf:{NAME}")).config == first.config


@pytest.mark.slow
def test_a_revision_is_kept(fake_hub, exported):
    config = json.loads(exported["config.json"])
    other = {**exported, "config.json": json.dumps({**config, "x": 1}).encode()}
    fake_hub.models[NAME] = {"main": exported, "old": other}
    for name, expected in (("", "main"), ("@old", "old")):
        found = hub.path(f"hf:{NAME}{name}")
        assert ("x" in json.loads((found / "config.json").read_text())) == bool(name)
        commit = fake_hub.commit(NAME, expected)
        assert hub.resolved(f"hf:{NAME}{name}") == f"hf:{NAME}@{commit}"
        assert hub.path(f"hf:{NAME}@{commit}") == found


@pytest.mark.slow
def test_a_broken_connection_is_resumed(fake_hub, exported):
    content = exported["model.safetensors"]
    fake_hub.models[NAME] = {"main": exported}
    fake_hub.breaks["model.safetensors"] = len(content) // 2
    found = hub.path(f"hf:{NAME}")
    assert (found / "model.safetensors").read_bytes() == content


@pytest.mark.slow
def test_what_cannot_be_had_is_one_line(fake_hub, exported, monkeypatch):
    fake_hub.models[NAME] = {"main": exported}
    fake_hub.models["people/pickle"] = {"main": {"pytorch_model.bin": b"", "a": b""}}
    fake_hub.models["people/closed"] = {"main": exported}
    fake_hub.refused["people/closed"] = "GatedRepo"

    def refuses(name, message):
        hub.downloaded.cache_clear()
        with pytest.raises(UserError, match=message) as caught:
            hub.path(name)
        assert name in str(caught.value) and "\n" not in str(caught.value)

    refuses("hf:bert", "OWNER/NAME")
    refuses("hf:people--x/none", "Cannot have --")
    refuses("hf:people/none", "no such repository")
    refuses(f"hf:{NAME}@never", "no such branch, tag or commit")
    refuses("hf:people/pickle", "no safetensors file")
    refuses("hf:people/closed", "asks for consent")
    fake_hub.sizes["model.safetensors"] = shutil.disk_usage("/").total * 10
    refuses(f"hf:{NAME}", "MB free")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refuses(f"hf:{NAME}", "not in the cache")


@pytest.mark.parametrize(
    ("missing", "offered"),
    [
        ("bert-base-uncased", "hf:google-bert/bert-base-uncased"),
        ("bert-large-uncased-whole-word-masking",
         "hf:google-bert/bert-large-uncased-whole-word-masking"),
        ("google-bert/bert-base-cased", "hf:google-bert/bert-base-cased"),
        ("runs/mine", ""),
        ("a/b/c", ""),
        ("/models/bert", ""),
        ("mine", ""),
    ],
)  # fmt: skip
def test_a_missing_folder_with_a_name_of_the_hub_s_offers_it(
    missing, offered, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    with pytest.raises(UserError, match="no such folder") as raised:
        bert_jax.load(missing)
    _, _, end = str(raised.value).partition("; on the Hugging Face Hub it would be ")
    assert end == offered


def test_a_folder_of_runs_is_no_name_of_the_hub_s(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("runs/foo", "models/bert", "./runs/foo", ".cache/bert"):
        assert not hub.likely(name)
    assert hub.likely("people/bert") == "hf:people/bert"


def test_what_was_deleted_from_the_cache_is_fetched_again(
    fake_hub, exported, monkeypatch
):
    """While this process held it: one blob, then all."""
    fake_hub.models[NAME] = {"main": exported}
    content = exported["model.safetensors"]
    for times in (1, 2):
        found = hub.path(f"hf:{NAME}") / "model.safetensors"
        assert found.read_bytes() == content
        assert gets(fake_hub, "model.safetensors") == times
        found.resolve().unlink()
    shutil.rmtree(found.parents[2])
    assert (hub.path(f"hf:{NAME}") / "model.safetensors").read_bytes() == content
    (hub.path(f"hf:{NAME}") / "model.safetensors").resolve().unlink()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="not in the cache, and the Hub"):
        hub.path(f"hf:{NAME}")


@pytest.mark.slow
def test_an_export_is_uploaded(fake_hub, plain, tmp_path):
    """And is what a run may start from; its card is what the Hub can read."""
    target = tmp_path / "small-bert"
    command = (f"--workdir={plain}", "--mode=export", f"--output={target}")
    out, _ = here(*command, f"--push=hf:{NAME}")
    assert f"pushed: {fake_hub.url}/{NAME}" in out and fake_hub.private == {NAME: True}
    sent = fake_hub.models[NAME]["main"]
    assert sent == {path.name: path.read_bytes() for path in target.iterdir()}
    found = ModelCard(sent["README.md"].decode())
    assert found.data.pipeline_tag == "fill-mask"
    assert found.data.library_name == "transformers"
    assert f'from_pretrained("{NAME}")' in found.text
    (line,) = metrics.read(plain, "dev")
    assert f"| loss | {line['loss']:.4g} |" in found.text
    assert weights.read(f"hf:{NAME}").config == weights.read(target).config
    here(*command, f"--push=hf:{NAME}")  # a second time: one more commit
    fake_hub.writes = False
    _, err = here(*command, "--push=hf:people/other", status=2)
    assert "no right to do this" in err
    _, err = here(*command, "--push=people/other", status=2)
    assert "hf:OWNER/NAME is required" in err
    _, err = here(f"--workdir={plain}", "--mode=evaluate", "--push=hf:a/b", status=2)
    assert "is for --mode=export" in err


@pytest.mark.parametrize(
    "answer",
    [b"\xff<", b"[]", b"{}", b'{"files": 3, "url": 7}', b'{"id": "x"}', b"[" * 100_000],
)
def test_answers_that_no_hub_gives_are_one_line(fake_hub, plain, tmp_path, answer):
    fake_hub.models[NAME] = {"main": {}}
    fake_hub.spoilt = {f"/api/models/{NAME}/revision": answer}
    with pytest.raises(UserError, match=r"is not what a Hub answers \(.*HF_ENDPOINT"):
        hub.path(f"hf:{NAME}")
    command = (f"--workdir={plain}", "--mode=export", f"--output={tmp_path / 'model'}")
    for stage in ("/api/repos/create", "/preupload/", "/commit/"):
        fake_hub.spoilt = {stage: answer}
        _, err = here(*command, "--push=hf:people/new", status=2)
        assert err.count("error: ") == 1 and "is not what a Hub answers" in err


def test_an_etag_names_no_file_outside_of_the_cache(fake_hub, exported, tmp_path):
    fake_hub.models[NAME] = {"main": exported}
    for etag in ("../../../evil", f"{tmp_path}/evil", "..", "a/../../../../evil"):
        for header in ("ETag", "X-Linked-Etag"):
            fake_hub.more = {"/model.safetensors": {header: f'"{etag}"'}}
            with pytest.raises(
                UserError, match=r"a file's ETag is .*check HF_ENDPOINT"
            ):
                hub.path(f"hf:{NAME}")
    assert not list(tmp_path.rglob("evil*"))
    fake_hub.more = {"/model.safetensors": {"ETag": 'W/"5f-60"'}}
    assert hub.path(f"hf:{NAME}")


def test_answers_end(fake_hub, exported, monkeypatch):
    """A list, its pages, and a file, though the server could go on for ever."""
    fake_hub.models[NAME] = {"main": exported}
    size = len(exported["model.safetensors"])
    monkeypatch.setattr(hub_exchange, "MOST", 1_000_000)

    def refuses(message):
        with pytest.raises(UserError, match=message) as caught:
            hub.path(f"hf:{NAME}")
        assert f"hf:{NAME}: " in str(caught.value)

    fake_hub.spoilt = {"/tree/": b"[" + b" " * 1_000_000 + b"]"}
    refuses("more than 1,000,000 bytes")
    fake_hub.spoilt = {"/tree/": b"[]"}
    page = f"{fake_hub.url}/api/models/{NAME}/tree/main"
    fake_hub.more = {"/tree/": {"Link": f'<{page}>; rel="next"'}}
    refuses("more than 1,000,000 bytes")
    assert len(fake_hub.requests) < 30
    fake_hub.more, fake_hub.sizes = {}, {"model.safetensors": size}
    for longer, message in ((10, "Consistency check"), (1_200_000, "more than")):
        fake_hub.spoilt = {"/model.safetensors": bytes(size + longer)}
        refuses(message)


def test_a_wait_that_a_hub_asks_for_is_bounded(fake_hub, exported, monkeypatch):
    fake_hub.models[NAME] = {"main": exported}
    fake_hub.busy, waits = 1, []
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", waits.append)
    assert hub.path(f"hf:{NAME}")
    assert 0 < max(waits) < 1000


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:99999", "http://["])
def test_an_endpoint_that_is_none_is_one_line(endpoint):
    """Which the client reads when it is imported."""
    program = "from bert_jax.runtime import hub; hub.path('hf:a/b')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HF_ENDPOINT": endpoint},
        capture_output=True,
        text=True,
    )
    last = done.stderr.splitlines()[-1]
    assert "UserError: hf:a/b: " in last and "check HF_ENDPOINT" in last


def test_a_hub_that_does_not_answer_is_not_waited_for(fake_hub, exported, monkeypatch):
    monkeypatch.setattr(hub_exchange, "PATIENCE", 0.05)
    fake_hub.models[NAME] = {"main": exported}
    fake_hub.seconds = 0.5
    with pytest.raises(UserError, match=r"ReadTimeout|timed out"):
        hub.path(f"hf:{NAME}")


def test_why_the_hub_cannot_be_reached_is_told(fake_hub, exported):
    fake_hub.models[NAME] = {"main": exported}
    fake_hub.refused[NAME] = "Unknown"
    with pytest.raises(UserError, match=r"cannot be reached .*404"):
        hub.path(f"hf:{NAME}")


def test_links_elsewhere_are_refused_still(exported, tmp_path):
    folder = tmp_path / "model" / "snapshots" / "1"
    folder.mkdir(parents=True)
    elsewhere = tmp_path / "secret"
    elsewhere.write_bytes(exported["config.json"])
    (folder / "model.safetensors").write_bytes(exported["model.safetensors"])
    (folder / "config.json").symlink_to(elsewhere)
    with pytest.raises(UserError, match="links out of its folder"):
        weights.read(Path(folder))
