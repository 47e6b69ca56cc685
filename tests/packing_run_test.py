"""Runs with packed rows: the losses of unpacked pairs, and exact on any devices."""

import json

import jax
import numpy as np
import pytest
from runs import MESH, finish, here, kill, losses, run, start, wait_for_lines

from bert_jax import tasks
from bert_jax.config import configuration
from bert_jax.data import loader, packing, records
from bert_jax.models.config import pretraining_flops
from bert_jax.workdir import metrics

NO_DROPOUT = (
    "--config.model.hidden_dropout_prob=0.0",
    "--config.model.attention_probs_dropout_prob=0.0",
)
# Two phases, each packed at its own length.
PACKED = (
    "--config.corpus.packing",
    "--config.corpus.short_seq_prob=0.5",
    "--config.phase2.fraction=0.25",
    "--config.phase2.max_seq_length=24",
    "--config.phase2.max_predictions_per_seq=4",
)


@pytest.fixture(scope="module")
def one(micro, tmp_path_factory):
    """A run on one device, dropout on."""
    workdir = tmp_path_factory.mktemp("packed") / "run"
    finish(start(f"--config={micro}", f"--workdir={workdir}", *PACKED))
    return workdir


@pytest.fixture(scope="module")
def task(micro):
    config = configuration.load(micro, [*PACKED, *NO_DROPOUT])
    task = tasks.create(config)
    task.resolve()
    task.training_data()
    return task


def test_losses_and_weights_are_those_of_the_pairs_one_a_row(task):
    config = task.config
    params = jax.jit(lambda: jax.tree.map(lambda x: 10 * x, _params(task)))()
    (phase, _) = loader.phases(config)
    data = task._data.of(phase.max_seq_length)
    source = loader._Pairs(config, phase, data, "train")
    rows = packing.rows(data.folder, phase.max_seq_length)
    assert (rows >= 0).sum(axis=1).max() >= 2
    together = source.packed(rows, np.zeros(len(rows), int))
    alone = source.batch(np.arange(len(source)), np.zeros(len(source), int))
    sums = [jax.jit(task.loss)(params, batch, None) for batch in (together, alone)]
    weights = [jax.jit(task.loss_weights)(batch) for batch in (together, alone)]
    assert set(sums[0]) == {"masked_lm_loss", "next_sentence_loss"}
    for name, weight in weights[1].items():
        assert weights[0][name] == weight
        assert weight > 0
        np.testing.assert_allclose(sums[0][name], sums[1][name], rtol=1e-5)


def _params(task):
    import flax.linen as nn

    return nn.meta.unbox(task.init_params(jax.random.key(0)))


@pytest.mark.heart
def test_a_killed_run_goes_on_exactly(micro, one, tmp_path):
    """Its rows are packed anew in a folder of its own."""
    workdir = tmp_path / "run"
    own = f"--config.corpus.data_dir={tmp_path / 'data'}"
    command = (f"--config={micro}", f"--workdir={workdir}", *PACKED, own)
    process = start(*command)
    wait_for_lines(workdir, 11, process)
    kill(process)
    finish(start(*command))
    assert np.array_equal(losses(workdir), losses(one))


@pytest.mark.parametrize(
    "change",
    [MESH, ("--config.mesh.fsdp=8", "--config.model.remat=full")],
    ids=["mesh", "fsdp_remat"],
)
def test_eight_devices_give_the_losses_of_one(micro, one, tmp_path, change):
    run(micro, tmp_path / "run", *PACKED, *change)
    found = losses(tmp_path / "run")
    np.testing.assert_allclose(found[0], losses(one)[0], rtol=1e-6)
    np.testing.assert_allclose(found, losses(one), rtol=1e-4)


def test_micro_batches_give_the_losses_of_the_whole_batch(micro, tmp_path):
    few = ("--config.train.num_steps=8", *PACKED, *NO_DROPOUT)
    run(micro, tmp_path / "whole", *few)
    parts = ("--config.train.micro_batches=2", "--config.phase2.micro_batches=2")
    run(micro, tmp_path / "parts", *few, *parts)
    np.testing.assert_allclose(
        losses(tmp_path / "parts"), losses(tmp_path / "whole"), rtol=1e-5
    )


def test_seeds_side_by_side_are_single_runs(micro, tmp_path):
    few = ("--config.train.num_steps=8", *PACKED)
    run(micro, tmp_path / "both", *few, "--config.train.seeds=2")
    for seed in "01":
        run(micro, tmp_path / seed, *few, f"--config.seed={seed}")
        together = losses(tmp_path / "both" / f"seed_{seed}")
        np.testing.assert_allclose(together, losses(tmp_path / seed), rtol=1e-6)


def test_the_speed_counts_pairs_and_tokens(one, task):
    lines, several = metrics.read(one, "train"), 0
    for step in (0, 14, 15, 19):  # two in each phase
        batch = loader.batch_at(task.config, step)
        pairs = (batch["next_sentence_labels"] != records.PADDING_LABEL).sum()
        several += pairs > len(batch["input_ids"])
        tokens = batch["input_mask"].sum()
        line = lines[step]
        ratio = line["tokens_per_second"] / line["sequences_per_second"]
        assert ratio == pytest.approx(tokens / pairs)
    assert several >= 2


def test_describe_counts_the_rows_as_they_are_computed(micro, task, tmp_path):
    target = tmp_path / "facts.json"
    here(
        f"--config={micro}", *PACKED, "--config.model.vocab_size=64",
        "--mode=describe", f"--output={target}",
    )  # fmt: skip
    found = [p["flops_per_step"] for p in json.loads(target.read_text())["phases"]]
    wanted = []
    for step in (0, 19):
        batch = loader.batch_at(task.config, step)
        (rows, length), predictions = (
            batch["input_ids"].shape,
            batch["masked_lm_ids"].shape[1],
        )
        sizes = length, predictions, packing.PAIRS
        wanted.append(rows * pretraining_flops(task.model_config, *sizes))
    assert found == wanted
