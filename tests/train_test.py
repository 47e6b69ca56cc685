"""Whole runs through main: phases and folders are as they say."""

import itertools
import json
import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.data.table import Table
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training import inference
from bert_jax.workdir import folder as workdirs
from bert_jax.workdir import metrics
from tests.runs import (
    MESH,
    ZERO1,
    finish,
    here,
    losses,
    run,
    saved,
    start,
    wait_for_lines,
)


def test_run_of_two_phases(micro, tmp_path):
    args = ("--config.phase2.fraction=0.25", "--config.phase2.max_seq_length=24")
    args += ("--config.phase2.batch_size=8", "--config.phase2.learning_rate=1e-3")
    args += ("--config.phase2.warmup_steps=2", "--config.optimizer.name=lamb")
    args += ("--config.train.profile_steps=(2, 4)",)
    out, _ = run(micro, tmp_path / "run", *args, "--config.train.eval_every=10")
    assert len(losses(tmp_path / "run")) == 20
    lines = metrics.read_metrics(tmp_path / "run", "train")
    rates = ("tokens_per_second", "sequences_per_second")
    lengths = [line[rates[0]] / line[rates[1]] for line in lines]
    assert lengths == pytest.approx([32] * 15 + [24] * 5)
    rates = [line["learning_rate"] for line in lines[15:]]
    assert rates == pytest.approx([0, 5e-4, 6e-4, 4e-4, 2e-4])
    dev = metrics.read_metrics(tmp_path / "run", "dev")
    assert [line["step"] for line in dev] == [10, 20]
    assert dev[0]["unigram_loss"] != dev[1]["unigram_loss"]
    assert "masked LM loss" in out
    assert len([*(tmp_path / "run" / "profile").rglob("*.xplane.pb")]) == 1


@pytest.mark.slow
def test_run_of_several_phases_resumes_within_one(micro, tmp_path):
    phases = ("steps=5 corpus.max_seq_length=16 train.batch_size=32", "steps=5")
    phases += ("steps=7 masking.masked_lm_prob=0.4 train.micro_batches=2",)
    phases += ("optimizer.learning_rate=2e-3 train.batch_size=8",)
    args = (f"--config.train.phases={phases}", "--config.checkpoint.save_every=7")
    run(micro, tmp_path / "run", *args)
    lines = metrics.read_metrics(tmp_path / "run", "train")
    lengths = [x["tokens_per_second"] / x["sequences_per_second"] for x in lines]
    assert lengths == pytest.approx([16] * 5 + [32] * 15)
    rates = [line["learning_rate"] for line in lines]
    assert max(rates[17:]) > rates[16]
    again = shutil.copytree(tmp_path / "run", tmp_path / "again")
    for step in (14, 20):
        shutil.rmtree(again / "checkpoints" / str(step))
    assert "resuming at step 7" in run(micro, again, *args)[1]
    np.testing.assert_array_equal(losses(again), losses(tmp_path / "run"))
    one, two = (saved(x, 20, "params") for x in (tmp_path / "run", again))
    jax.tree.map(np.testing.assert_array_equal, one, two)
    longer = ("--config.train.num_steps=30", "--config.train.extend=True")
    run(micro, again, *args, *longer)  # no phase begins elsewhere
    by_share = f"--config.train.phases={('fraction=0.5', '')}"
    run(micro, tmp_path / "shares", by_share)
    error = run(micro, tmp_path / "shares", by_share, *longer, status=2)[1]
    assert "move the start of a phase" in error


@pytest.mark.slow
def test_work_directory_holds_what_the_design_says(plain):
    names = {path.name for path in plain.iterdir()}
    assert {"config.json", "metrics.jsonl", "checkpoints", "vocab.txt"} <= names
    assert {"tokenizer.json", "predictions"} <= names
    assert any(name.startswith("events") for name in names)
    config = json.loads((plain / "config.json").read_text())
    assert config["model"]["vocab_size"] == 64
    expected = {
        "train": "step time loss masked_lm_loss learning_rate usual_loss grad_norm "
        "sequences_per_second tokens_per_second",
        "dev": "masked_lm_loss masked_lm_accuracy perplexity unigram_loss "
        "next_sentence_loss next_sentence_accuracy",
    }
    for split, numbers in expected.items():
        line = metrics.read_metrics(plain, split)[-1]
        assert set(numbers.split()) <= set(line)


def test_prepare_ends_with_its_folder(micro, tmp_path):
    out, _ = run(micro, tmp_path / "run", "--mode=prepare")
    last = out.splitlines()[-1]
    assert last.startswith("prepared: ")
    for split in ("train", "dev"):
        table = Table.open(Path(last.removeprefix("prepared: ")) / split)
        names = {"tokens", "size_a", "is_random_next", "source"}
        assert set(table) == names and table.rows
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_describe_base(tmp_path):
    target = tmp_path / "base.json"
    here("--config=configs/base.py", "--mode=describe", f"--output={target}")
    facts = json.loads(target.read_text())
    assert facts["parameters"] == 109_482_240
    assert facts["phases"][0]["flops_per_step"] == pytest.approx(256 * 69.9e9, rel=1e-3)
    names = [*facts]
    assert (names[0], names[-1]) == ("model", "config")
    assert [phase["steps"] for phase in facts["phases"]] == [900_000, 100_000]


# Runs that a signal stops: the step is saved, and the same command continues.


def test_signal_saves_the_step_and_the_run_resumes_elsewhere(
    micro, tmp_path, monkeypatch
):
    workdir = tmp_path / "run"
    many = "--config.train.num_steps=5000"
    process = start(f"--config={micro}", f"--workdir={workdir}", many)
    wait_for_lines(workdir, 3, process)
    process.send_signal(signal.SIGTERM)
    _, err = finish(process, 143)
    last = metrics.read_metrics(workdir, "train")[-1]["step"]
    saved = max(int(p.name) for p in (workdir / "checkpoints").iterdir())
    assert saved == last
    assert f"saved step {saved}" in err
    # On another mesh, with another number of devices and less memory on each.
    batches = Pretraining.batches

    def two(self, now, rows, seed):
        yield from itertools.islice(batches(self, now, rows, seed), 2)
        signal.raise_signal(signal.SIGTERM)
        yield from batches(self, now + 2, rows, seed)

    monkeypatch.setattr(Pretraining, "batches", two)
    less = (*ZERO1, "--config.model.remat=full")
    _, err = run(micro, workdir, many, *MESH, *less, status=143)
    assert f"resuming at step {saved} of 5000" in err
    assert len(losses(workdir)) == saved + 3  # the signal came before the third


@pytest.mark.slow
def test_signal_during_evaluation_saves_and_the_evaluation_is_made_up(
    micro, tmp_path, monkeypatch
):
    results = inference.Evaluator.results

    def signalled(self, *args):
        signal.raise_signal(signal.SIGINT)
        return results(self, *args)

    workdir, often = tmp_path / "run", "--config.train.eval_every=10"
    with monkeypatch.context() as patch:
        patch.setattr(inference.Evaluator, "results", signalled)
        _, err = run(micro, workdir, often, status=130)
    assert "saved step 10" in err
    assert metrics.read_metrics(workdir, "dev") == []
    run(micro, workdir, often)
    assert [line["step"] for line in metrics.read_metrics(workdir, "dev")] == [10, 20]
    assert len(losses(workdir)) == 20


# A run and its text: the prepared data counts, and changed text is noticed.


def own_text(tmp_path):
    """Documents in which no sentence appears twice, and the fields that name them."""
    text = tmp_path / "text.txt"
    document = "the quick fox {0}\nit jumps {0}\na lazy dog {0}\n\n"
    text.write_text("".join(map(document.format, range(40))))
    fields = [f"--config.corpus.sources=sentences:{text}"]
    return text, [*fields, f"--config.corpus.data_dir={tmp_path}/data"]


PHASES = (
    *("--config.phase2.fraction=0.5", "--config.phase2.max_seq_length=24"),
    *("--config.train.num_steps=4", "--config.train.eval_every=2"),
)


@pytest.fixture(scope="module")
def straight(micro, tmp_path_factory):
    """A run of two phases whose text stays as it is."""
    folder = tmp_path_factory.mktemp("straight")
    _, own = own_text(folder)
    run(micro, folder / "run", *own, *PHASES)
    return folder / "run"


@pytest.mark.slow
def test_text_plays_no_part_once_it_is_prepared(micro, straight, tmp_path, monkeypatch):
    """Nor at the first evaluation, nor where phase 2 begins."""
    text, own = own_text(tmp_path)
    claim = workdirs.claim_folder

    def changing(*args, **kwargs):  # prepared, and nothing is trained yet
        claim(*args, **kwargs)
        text.unlink()

    monkeypatch.setattr(workdirs, "claim_folder", changing)
    out, _ = run(micro, tmp_path / "run", *own, *PHASES)
    assert losses(tmp_path / "run").tolist() == losses(straight).tolist()
    mine, expected = (
        metrics.read_metrics(path, "dev") for path in (tmp_path / "run", straight)
    )
    assert all(line.pop("time") for line in [*mine, *expected])
    assert mine == expected and len(mine) == 2
    assert "of the tokens)\nnot among them: " in out
    prepared = [p for p in (tmp_path / "data").iterdir() if p.name.startswith("pairs")]
    assert len(prepared) == 2


@pytest.mark.slow
def test_text_that_has_changed_is_noticed_and_prediction_does_without(micro, tmp_path):
    workdir, text = tmp_path / "run", tmp_path / "text.txt"
    own_text(tmp_path)
    data = tmp_path / "data"
    own = [f"--config.corpus.sources=sentences:{tmp_path}/*.txt"]
    own += [f"--config.corpus.data_dir={data}", "--config.train.num_steps=2"]
    run(micro, workdir, *own)
    config = (workdir / "config.json").read_bytes()
    with text.open("a") as file:
        file.writelines(f"other words {n}\naltogether {n}\n\n" for n in range(50))
    for mode in ("train", "evaluate"):
        shutil.rmtree(data, ignore_errors=True)
        _, err = run(micro, workdir, *own, f"--mode={mode}", status=2)
        assert "the text has changed since the run started" in err
        assert not list(data.glob("pairs-*"))  # refused before that work
    assert (workdir / "config.json").read_bytes() == config
    text.unlink()
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "the [MASK] fox"}\n')
    out, _ = run(micro, workdir, *own, "--mode=predict", f"--input={source}")
    assert len(json.loads(out)["masks"][0]) == 5
