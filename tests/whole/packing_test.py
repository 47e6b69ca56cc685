"""Runs with packed rows: the losses of unpacked pairs, speed and sizes.

That they are exact on any devices and continue after a stop: contract_test.py.
"""

import json

import jax
import numpy as np
import pytest

from bert_jax import tasks
from bert_jax.config import configuration
from bert_jax.data import loader, masking, packing
from bert_jax.data.rows import PADDING_LABEL
from bert_jax.models.config import pretraining_flops
from bert_jax.workdir import metrics
from tests.contract_runs import PACKED, packed
from tests.micro import initial_params
from tests.runs import here


@pytest.fixture(scope="module")
def one(micro, once):
    """A run on one device."""
    return packed(once, micro).workdir


def prepared(micro, *more):
    task = tasks.create_task(configuration.load_config(micro, [*PACKED, *more]))
    task.resolve()
    task.training_data()
    return task


@pytest.fixture(scope="module")
def task(micro):
    return prepared(micro)


def packed_rows(task):
    """Every packed row of the first phase, its data, and the rows of single pairs."""
    (phase, _) = loader.phases_of(task.config)
    data = task._data.prepare_length(phase.max_seq_length)
    make = loader.row_maker(task.config, phase, data, "train")
    make_packed, count = loader._packed_maker(task.config, phase, data, make)
    pairs = np.arange(data.table("train").rows)
    together = make_packed(np.arange(count), np.zeros(count, int))
    return together, data, make(pairs, 0 * pairs)


@pytest.mark.slow
def test_losses_and_weights_are_those_of_the_pairs_one_a_row(task):
    params = jax.tree.map(lambda x: 10 * x, initial_params(task.init_params))
    together, _, alone = packed_rows(task)
    assert together["sequence_ids"].max() >= 2
    sums = [jax.jit(task.loss)(params, batch, None) for batch in (together, alone)]
    weights = [jax.jit(task.loss_weights)(batch) for batch in (together, alone)]
    assert set(sums[0]) == {"masked_lm_loss", "next_sentence_loss"}
    for name, weight in weights[1].items():
        assert weights[0][name] == weight > 0
        np.testing.assert_allclose(sums[0][name], sums[1][name], rtol=1e-5)


@pytest.mark.slow
def test_config_says_how_many_a_row(micro):
    """Losses are those of the pairs one a row, whatever the number."""
    found, params = [], None
    for most in (2, 8):
        task = prepared(micro, f"--config.corpus.packed_pairs={most}")
        batch, data, _ = packed_rows(task)
        assert (data.folder / f"packed-{most}.npy").exists()
        phase = loader.phases_of(task.config)[0]
        assert 2 <= batch["sequence_ids"].max() <= most
        named = masking.batch_shapes(task.config, phase)["cls_positions"]
        assert batch["cls_positions"].shape[1] == named[1] == most
        params = params or initial_params(task.init_params)
        found.append(jax.jit(task.loss)(params, batch, None))
    for name, one in found[0].items():
        np.testing.assert_allclose(one, found[1][name], rtol=1e-5)


@pytest.mark.slow
def test_speed_counts_pairs_and_tokens(one, task):
    lines, several = metrics.read_metrics(one, "train"), 0
    for step in (0, 14, 15, 19):  # two in each phase
        batch = loader.batch_at(task.config, step)
        pairs = (batch["next_sentence_labels"] != PADDING_LABEL).sum()
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
        rows, length = batch["input_ids"].shape
        sizes = length, batch["masked_lm_ids"].shape[1], packing.PAIRS
        wanted.append(rows * pretraining_flops(task.model_config, *sizes))
    assert found == wanted
