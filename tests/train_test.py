"""Whole runs through main: phases and folders are as they say."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.data.table import Table
from bert_jax.workdir import metrics
from tests.runs import here, losses, run, saved


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
