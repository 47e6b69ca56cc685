"""Phases of a run: their steps, their rates, and the texts that describe them."""

import re

import jax
import numpy as np
import pytest

from bert_jax.config.configuration import check_config, set_field, with_defaults
from bert_jax.config.phases import find_phase, phases_of
from bert_jax.training import optimizer
from tests.micro import error_line


def make_config(*phases, num_steps=100, **fields):
    config = with_defaults()
    config.train.num_steps, config.train.phases = num_steps, phases
    config.optimizer.update({"learning_rate": 1e-2, "warmup_steps": 10} | fields)
    return config


@pytest.mark.parametrize(
    ("phases", "num_steps", "ends"),
    [
        ((), 100, [100]),
        (("steps=30", "", "fraction=0.2"), 100, [30, 80, 100]),
        (("fraction=0.5", "fraction=0.5"), 7, [4, 7]),
        (("fraction=0.3333",) * 3, 100, [33, 67, 100]),
        (("fraction=0.25",) * 4, 6, [2, 3, 4, 6]),
        (("fraction=0.3", "fraction=0.3", "", "fraction=0.15"), 10, [3, 6, 8, 10]),
        (("steps=40", "fraction=0.6"), 100, [40, 100]),
        (("steps=100",), 100, [100]),
        (("fraction=1e-3", "", "steps=3"), 10_000, [10, 9997, 10_000]),
    ],
    ids=str,
)
def test_steps_of_phases(phases, num_steps, ends):
    config = make_config(*phases, num_steps=num_steps)
    check_config(config)
    found = phases_of(config)
    assert [phase.end_step for phase in found] == ends
    assert [phase.first_step for phase in found] == [0, *ends[:-1]]
    for phase in found:
        assert find_phase(found, phase.first_step) == phase
        assert find_phase(found, phase.end_step - 1) == phase


def test_values_of_a_phase():
    """As the command line gives them: a name of many letters, a value with spaces."""
    config = make_config()
    config.corpus.sources = ("lines:a", "lines:b")
    one = "fraction=0.2 corpus.weights=(1.0, 0) masking.name=bert masking.whole_word="
    text = f"('{one}True', 'train.batch_size=8 corpus.max_seq_length=512')"
    set_field(config, "train.phases", text)
    check_config(config)
    first, second = phases_of(config)
    assert first.value(config, "corpus.weights") == (1.0, 0)
    assert first.value(config, "masking.whole_word") is True
    assert not second.value(config, "masking.whole_word")
    assert second[:4] == (20, 100, 8, 512) and first[2:4] == (256, 128)


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        (("steps=40", "steps=50"), r"90 steps and 0 phases for the rest .*=100"),
        (("steps=140", ""), r"140 steps and 1 phases for the rest .*num_steps=100"),
        (("steps=40", "", ""), r"2 phases for the rest"),
        (("steps=99", "fraction=0.01", ""), r"phase 3 has none of .*num_steps=100"),
        (("fraction=0.001", ""), r"phase 1 has none of .*num_steps=100"),
        (("steps=40 steps=50", ""), r"has a field twice"),
        (("steps=1.5", ""), r"phases\[0\]='steps=1\.5': steps .* whole number"),
        (("steps=0", ""), r"steps must be"),
        (("steps=5 fraction=0.1", ""), r"steps and fraction"),
        (("fraction=2.0", ""), r"fraction must be above 0 and at most 1"),
        (("", "fraction=half"), r"phases\[1\].*fraction must be"),
        (("seed=3",), r"seed does not belong to a phase"),
        (("optimizer.name=lamb",), r"optimizer\.name does not belong to a phase"),
        (("masking.nowhere=1",), r"masking\.nowhere does not belong to a phase"),
        (("512",), r"512 does not belong to a phase"),
        (("train.batch_size=0",), r"config\.train\.batch_size=0: must be at least 1"),
        (("train.batch_size=many",), r"batch_size='many': must be of type int"),
        (("masking.masked_lm_prob=1.5",), r"masked_lm_prob=1\.5: must be in"),
        (("masking.mask_fraction=1.0",), r"mask_fraction=1\.0 and .*more than 1"),
        (("corpus.weights=(1.0,)",), r"phases\[0\].*one for each of the 2"),
        (("optimizer.warmup_steps=10000 optimizer.learning_rate=1",), None),
    ],
    ids=str,
)
def test_phases_that_are_bad(phases, message):
    config = make_config(*phases)
    if message is None:  # more warm-up than steps
        message = r"warmup_steps=10000: must be at most the schedule's 100"
        line = error_line(optimizer.learning_rates, config)
    else:
        line = error_line(check_config, config)
    assert re.search(message, line), line


def test_phases_and_phase2_are_one_too_many():
    config = make_config("fraction=1.0")
    config.phase2.fraction = 0.1
    assert "both are phases" in error_line(check_config, config)


@pytest.mark.parametrize("schedule", ["polynomial", "warmup_stable_decay"])
def test_each_rate_begins_a_schedule(schedule):
    """Of its own steps. A phase without a rate goes on with the one before."""
    config = make_config(
        "steps=40",
        "steps=20 train.batch_size=8",
        "optimizer.learning_rate=4e-3 optimizer.warmup_steps=5",
        schedule=schedule,
    )
    rates = optimizer.learning_rates(config)
    for steps, first, fields in (
        (60, 0, {}),
        (40, 60, {"learning_rate": 4e-3, "warmup_steps": 5}),
    ):
        alone = make_config(num_steps=steps, schedule=schedule, **fields)
        expected = optimizer.learning_rates(alone)
        np.testing.assert_array_equal(rates[first : first + steps], expected)
    one = optimizer.learning_rate_schedule(config)
    assert jax.jit(one)(75) == rates[75]


def test_a_phase_with_another_schedule():
    config = make_config(
        "optimizer.schedule=warmup_stable_decay optimizer.decay_fraction=0",
        "fraction=0.2 optimizer.warmup_steps=0",
    )
    check_config(config)
    rates = optimizer.learning_rates(config)
    np.testing.assert_allclose(rates[10:80], 1e-2, rtol=1e-6)
    falling = 1e-2 * (1 - np.arange(20) / 20)
    np.testing.assert_allclose(rates[80:], falling, rtol=1e-5)


def test_one_kind_of_warmup_replaces_the_other():
    in_shares = {"warmup_steps": 0, "warmup_fraction": 0.1}
    config = make_config("steps=50", "optimizer.warmup_steps=5", **in_shares)
    check_config(config)
    found = optimizer.learning_rates(config)[50:]
    alone = make_config(num_steps=50, warmup_steps=5)
    np.testing.assert_array_equal(found, optimizer.learning_rates(alone))
    config = make_config("steps=50", "optimizer.warmup_fraction=0.1")
    check_config(config)
    np.testing.assert_array_equal(optimizer.learning_rates(config)[50:], found)
