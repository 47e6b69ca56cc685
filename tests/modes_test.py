"""A finished run is queried: predicted with, evaluated, exported, continued."""

import io
import itertools
import json
import shutil
import sys

import numpy as np
import pytest
from ml_collections import FrozenConfigDict

from bert_jax import tasks
from bert_jax.config import configuration
from bert_jax.training import optimizer, run_config
from bert_jax.workdir import metrics
from tests.micro import read_rows, write_rows
from tests.runs import here, losses, refused, run


def test_weights_are_described_without_a_config(plain, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own, _ = here(f"--workdir={plain}", "--mode=describe")
    found, _ = here(f"--config.init_from={plain}", "--mode=describe")
    for name in ("parameters", "parameters_with_heads"):
        assert json.loads(found)[name] == json.loads(own)[name]
    error = refused("--mode=describe")
    assert "--workdir=runs does not exist, and there is no --config=FILE" in error


def test_predict_and_evaluate_the_finished_run(micro, plain, tmp_path, monkeypatch):
    rows = [
        {"text": "the quick [MASK] fox"},
        {"text": "a dog", "text_b": "seven [MASK] [MASK]", "id": 7},
        {"text": "nothing masked"},
    ]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_rows(source, rows)
    run(micro, plain, "--mode=predict", f"--input={source}", f"--output={target}")
    results = read_rows(target)
    assert [len(row["masks"]) for row in results] == [1, 2, 0]
    for row, result in zip(rows, results, strict=True):
        assert row.items() <= result.items()
        assert ("is_next_probability" in result) == ("text_b" in row)
        for guesses in result["masks"]:
            probabilities = [guess["probability"] for guess in guesses]
            assert len(guesses) == 5
            assert probabilities == sorted(probabilities, reverse=True)
            assert 0 < sum(probabilities) <= 1
            assert {*map(frozenset, guesses)} == {
                frozenset(("token", "id", "probability"))
            }
    piped = io.TextIOWrapper(io.BytesIO(source.read_bytes()))
    monkeypatch.setattr(sys, "stdin", piped)
    eight = ("--mode=predict", "--config.mesh.data=8")
    out, _ = run(micro, plain, *eight, "--config.predict.top_k=2")
    two = [json.loads(line) for line in out.splitlines()]
    for row, full in zip(two, results, strict=True):
        for guesses, more in zip(row["masks"], full["masks"], strict=True):
            assert [g["id"] for g in guesses] == [g["id"] for g in more[:2]]
            shares = ([g["probability"] for g in each] for each in (guesses, more[:2]))
            np.testing.assert_allclose(*shares, rtol=1e-4)
    out, _ = run(micro, plain, "--mode=evaluate")
    numbers = json.loads(out)
    saved = metrics.read_metrics(plain, "dev")[-1]
    for name in ("masked_lm_loss", "next_sentence_loss", "unigram_loss"):
        assert numbers[name] == pytest.approx(saved[name], rel=1e-5)


@pytest.mark.slow
def test_finished_run_started_again_says_so_and_changes_nothing(micro, plain):
    before = (plain / "metrics.jsonl").read_bytes()
    out, err = run(micro, plain)
    assert "step 20 of 20" in err
    assert "masked LM loss" in out
    assert (plain / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("kind", ["run", "weights", "exported"])
def test_folder_of_others_does_not_describe_this_machine(micro, plain, tmp_path, kind):
    folder = tmp_path / "theirs"
    if kind == "exported":
        run(micro, plain, "--mode=export", f"--output={folder}")
    else:
        shutil.copytree(plain, folder)
    path = folder / "config.json"
    content = json.loads(path.read_text())
    theirs = content["bert_jax"]["config"] if kind == "exported" else content
    theirs["serve"] = {"hosts": ["evil.example"], "grace_seconds": 9e3}
    theirs["mesh"]["data"] = 64
    theirs["corpus"] |= {"runner": "Evil", "beam_options": ["--evil"]}
    theirs["train"] |= {"trackers": ["wandb"], "profile_steps": [1, 2]}
    theirs["tokenizer"]["vocab_file"] = theirs["corpus"]["data_dir"] = "/evil"
    path.write_text(json.dumps(content))
    named = {} if kind == "run" else {"init_from": folder}
    workdir = folder if kind == "run" else tmp_path / "none"
    config = run_config.config_of(workdir, None, named, is_inference=True)
    default = FrozenConfigDict(configuration.with_defaults())
    assert (config.serve, config.mesh) == (default.serve, default.mesh)
    if kind != "run":  # the folder of a run may be one's own
        assert "evil" not in str(config).lower() and not config.train.trackers
    hosts = named | {"serve.hosts": ["mine"]}
    config = run_config.config_of(workdir, None, hosts, is_inference=True)
    assert config.serve.hosts == ("mine",)


def test_export_and_go_on_from_it_with_other_text(micro, plain, tmp_path):
    exported = tmp_path / "exported"
    out, _ = run(micro, plain, "--mode=export", f"--output={exported}")
    assert out == f"exported: {exported}\n"
    text = tmp_path / "own.txt"
    words = ["a", "quick", "dog", "seven", "cats", "the", "fox", "it", "jumps"]
    orders = itertools.permutations(words)
    pairs = [f"{' '.join(next(orders))}\n{' '.join(next(orders))}\n" for _ in range(40)]
    text.write_text("\n".join(pairs))
    own = f"--config.corpus.sources=sentences:{text}", f"--config.init_from={exported}"
    workdir = tmp_path / "run"
    run(micro, workdir, *own, "--config.train.num_steps=1")
    assert (workdir / "vocab.txt").read_text() == (plain / "vocab.txt").read_text()
    report = json.loads((workdir / "init_from.json").read_text())
    assert report["initialised"] == [] and report["left_over"] == []
    assert len(report["taken"]) == 30
    # The first step begins where the other run ended, not at random values.
    assert losses(workdir)[0] < losses(plain)[0] - 0.5

    pieces = (plain / "vocab.txt").read_text().splitlines()
    pieces[10:12] = reversed(pieces[10:12])
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n")
    vocabulary = f"--config.tokenizer.vocab_file={path}"
    _, err = run(micro, tmp_path / "other", *own, vocabulary, status=2)
    assert "tokenizer is not that of" in err
    assert not (tmp_path / "other" / "config.json").exists()


@pytest.mark.slow
def test_finished_run_is_trained_longer_if_asked(micro, plain, tmp_path):
    plain = shutil.copytree(plain, tmp_path / "run")  # the other tests keep theirs
    before = losses(plain)
    longer = "--config.train.num_steps=26"
    _, error = run(micro, plain, longer, status=2)
    assert "num_steps (20 there, 26 now)" in error and "train.extend=True" in error
    phases = ("--config.phase2.fraction=0.5", "--config.phase2.max_seq_length=24")
    _, error = run(micro, plain, longer, *phases, status=2)
    assert "another config" in error and "extend" not in error
    run(micro, plain, longer, "--config.train.extend=True")
    after = losses(plain)
    assert len(after) > len(before)
    np.testing.assert_array_equal(after[: len(before)], before)
    task = tasks.create_task(configuration.load_config(micro, [longer]))
    rate = optimizer.learning_rate_schedule(task.config)
    for line in metrics.read_metrics(plain, "train"):
        if line["step"] > 20:
            assert line["learning_rate"] == pytest.approx(float(rate(line["step"] - 1)))
    _, error = run(micro, plain, status=2)  # never shorter
    assert "num_steps (26 there, 20 now)" in error and "extend" not in error
