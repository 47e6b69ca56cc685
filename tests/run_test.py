"""Whole runs through main: variants agree, phases and seeds are what they say."""

import dataclasses
import json

import numpy as np
import pytest
from runs import MESH, ZERO1, finish, here, losses, run, start

from bert_jax.tasks.pretraining import Pretraining
from bert_jax.workdir import metrics

NO_DROPOUT = (
    "--config.model.hidden_dropout_prob=0.0",
    "--config.model.attention_probs_dropout_prob=0.0",
)


DEEP = "--config.model.num_hidden_layers=2"


@pytest.mark.slow
def test_eight_devices_and_variants_give_the_losses_of_one(micro, tmp_path):
    """All variants at once, of two layers; the mesh alone: contract_test.py."""
    finish(start(f"--config={micro}", f"--workdir={tmp_path / 'one'}", DEEP))
    layers = ("--config.model.scan_layers", "--config.model.remat=full")
    run(micro, tmp_path / "run", DEEP, *MESH, *ZERO1, *layers)
    one, other = losses(tmp_path / "one"), losses(tmp_path / "run")
    assert len(one) == 20
    np.testing.assert_allclose(other[0], one[0], rtol=1e-6)
    np.testing.assert_allclose(other, one, rtol=1e-4)


@pytest.mark.slow
def test_micro_batches_give_the_losses_of_the_whole_batch(micro, tmp_path):
    folders = tmp_path / "whole", tmp_path / "parts"
    lamb = "--config.optimizer.name=lamb"  # the other optimizers: fine-tuning's tests
    for workdir, parts in zip(folders, (1, 4), strict=True):
        change = (f"--config.train.micro_batches={parts}", "--config.train.num_steps=8")
        run(micro, workdir, *change, lamb, *NO_DROPOUT, *MESH)
    whole, parts = map(losses, folders)
    np.testing.assert_allclose(parts, whole, rtol=1e-5)


@pytest.mark.slow
def test_seeds_side_by_side_are_single_runs_on_the_same_data(micro, tmp_path):
    """Vocabulary, held-out documents and their masks are shared; the rest differs."""
    for name, arguments in (
        ("both", ["--config.train.seeds=2"]),
        ("0", ["--config.seed=0"]),
        ("1", ["--config.seed=1"]),
    ):
        few = ["--config.train.num_steps=8", "--config.train.eval_every=4"]
        run(micro, tmp_path / name, *few, *arguments)
    for seed in "01":
        together, alone = tmp_path / "both" / f"seed_{seed}", tmp_path / seed
        np.testing.assert_allclose(losses(together), losses(alone), rtol=1e-6)
        for mine, own in zip(
            metrics.read(together, "dev"), metrics.read(alone, "dev"), strict=True
        ):
            assert mine["loss"] == pytest.approx(own["loss"], rel=1e-6)
            assert mine["unigram_loss"] == own["unigram_loss"]
        for name in ("vocab.txt", "tokenizer.json"):
            assert (together / name).read_bytes() == (alone / name).read_bytes()
    (zero, one) = (metrics.read(tmp_path / seed, "dev")[-1] for seed in "01")
    assert zero["unigram_loss"] == one["unigram_loss"]
    assert zero["loss"] != one["loss"]
    vocabularies = {(tmp_path / name / "vocab.txt").read_text() for name in "01"}
    assert len(vocabularies) == 1


def test_two_phases_in_one_run(micro, tmp_path):
    args = ("--config.phase2.fraction=0.25", "--config.phase2.max_seq_length=24")
    args += ("--config.phase2.batch_size=8", "--config.phase2.learning_rate=1e-3")
    args += ("--config.phase2.warmup_steps=2", "--config.optimizer.name=lamb")
    out, err = run(micro, tmp_path / "run", *args, "--config.train.eval_every=10")
    assert len(losses(tmp_path / "run")) == 20
    lines = metrics.read(tmp_path / "run", "train")
    lengths = [
        line["tokens_per_second"] / line["sequences_per_second"] for line in lines
    ]
    assert lengths == pytest.approx([32] * 15 + [24] * 5)
    rates = [line["learning_rate"] for line in lines[15:]]
    assert rates == pytest.approx([0, 5e-4, 6e-4, 4e-4, 2e-4])
    # It prints the memory of a step only for wider batches.
    assert "in a step at length 32" in err and "in a step at length 24" not in err
    first, *rest = err.partition(f"{tmp_path / 'run'}: ")[2].splitlines()
    assert first == (
        "pretraining, 15 steps of 16 rows of up to 32 tokens, then 5 steps of 8 rows "
        "of up to 24 tokens"
    )
    starts = ("model: ", "on each device: ", "tokenizer: ", "log: ", "to stop: Ctrl-C")
    places = [i for s in starts for i, line in enumerate(rest) if line.startswith(s)]
    assert len(places) == len(starts) and places == sorted(places)
    compiled = [line for line in rest if line.startswith("compiling")]
    assert compiled == [
        "compiling the step at length 32 (1 of 2)",
        "compiling the step at length 24 (2 of 2)",
    ]
    # The scores of the last step are in the table alone.
    assert "step 10 dev: loss " in err and "step 20 dev" not in err
    hints = out.partition("next:")[2]
    assert f"--workdir={tmp_path / 'run'} --mode=predict" in hints
    assert (
        f"task.data_dir=hf:nyu-mll/glue --config.init_from={tmp_path / 'run'}" in hints
    )
    dev = metrics.read(tmp_path / "run", "dev")
    assert [line["step"] for line in dev] == [10, 20]
    assert dev[0]["unigram_loss"] != dev[1]["unigram_loss"]
    assert "masked LM loss" in out


@pytest.mark.slow
def test_the_best_of_two_phases_is_that_of_the_second(micro, tmp_path, monkeypatch):
    """Losses at two lengths do not compare, and the longer ones' are the higher."""
    given = iter([1.0, 2.0, 4.0, 5.0])

    def results(self, split, fetched, **learns):
        found = own(self, split, fetched, **learns)
        scores = {**found.scores, "loss": next(given, 5.0)}
        return dataclasses.replace(found, scores=scores)

    own = Pretraining.results
    monkeypatch.setattr(Pretraining, "results", results)
    args = ("--config.phase2.fraction=0.5", "--config.phase2.max_seq_length=24")
    args += ("--config.train.eval_every=5", "--config.evaluate.checkpoint=best")
    out, _ = run(micro, tmp_path / "run", *args)
    assert [path.name for path in (tmp_path / "run" / "best").iterdir()] == ["15"]
    assert "dev at step 15" in out


@pytest.mark.slow
def test_the_work_directory_holds_what_the_design_says(plain):
    names = {path.name for path in plain.iterdir()}
    assert {"config.json", "metrics.jsonl", "checkpoints", "vocab.txt"} <= names
    assert {"tokenizer.json", "predictions"} <= names
    assert any(name.startswith("events") for name in names)
    config = json.loads((plain / "config.json").read_text())
    assert config["model"]["vocab_size"] == 64
    line = metrics.read(plain, "train")[-1]
    assert {
        "step",
        "time",
        "loss",
        "masked_lm_loss",
        "learning_rate",
        "usual_loss",
    } <= set(line)
    assert {"grad_norm", "sequences_per_second", "tokens_per_second"} <= set(line)
    dev = metrics.read(plain, "dev")[-1]
    assert {
        "masked_lm_loss",
        "masked_lm_accuracy",
        "perplexity",
        "unigram_loss",
    } <= set(dev)
    assert {"next_sentence_loss", "next_sentence_accuracy"} <= set(dev)


def test_prepare_ends_with_its_folder(micro, tmp_path):
    import tensorflow_datasets as tfds

    out, _ = run(micro, tmp_path / "run", "--mode=prepare")
    last = out.splitlines()[-1]
    assert last.startswith("prepared: ")
    builder = tfds.builder_from_directory(last.removeprefix("prepared: "))
    assert set(builder.info.splits) == {"train", "dev"}
    assert set(builder.info.features) == {"tokens_a", "tokens_b", "is_random_next"}
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_describe_base(tmp_path):
    target = tmp_path / "base.json"
    here("--config=configs/base.py", "--mode=describe", f"--output={target}")
    facts = json.loads(target.read_text())
    assert facts["parameters"] == 109_482_240
    assert facts["flops_per_step"] == pytest.approx(256 * 69.9e9, rel=1e-3)
    assert [phase["steps"] for phase in facts["phases"]] == [900_000, 100_000]
