"""The report of learning curves: means, intervals, epochs."""

import math
import re

import numpy as np
import pytest
from scipy import stats

from experiments.claims import curves_report
from experiments.lib import plots, report


def test_means_and_intervals():
    draws = [0.6, 0.7, 0.65]
    found = {
        ("fine-tuned", 4, draw): [{"epoch": 1.0, "test_loss": value}]
        for draw, value in enumerate(draws)
    }
    ((epoch, mean, reach),) = curves_report.by_epoch(
        found, "fine-tuned", 4, "test_loss"
    )
    low, high = stats.t.interval(
        0.95, 2, loc=np.mean(draws), scale=stats.sem(np.array(draws))
    )
    assert (epoch, mean) == (1.0, pytest.approx(0.65))
    assert (mean - reach, mean + reach) == (pytest.approx(low), pytest.approx(high))


def test_what_has_no_interval_has_none(tmp_path, monkeypatch):
    """A NaN was the lowest loss; intervals were "-inf to +inf" and "nan +- inf"."""
    monkeypatch.setattr(plots, "lines", lambda panels: None)
    monkeypatch.setattr(plots, "save", lambda figure: b"")
    found = {}
    for draw in range(3):
        for system in (curves_report.FINE, curves_report.CLS):
            found[system, 8, draw] = [
                {"step": step, "epoch": float(step), "test_loss": 1.0 / step}
                | {"train_loss": 0.5, "train_accuracy": 0.5, "test_accuracy": 0.5}
                for step in (1, 2)
            ]
    found[curves_report.FINE, 8, 1][0]["test_loss"] = math.nan
    found[curves_report.FINE, 8, 1][1]["test_accuracy"] = math.nan
    said = curves_report.write(tmp_path, found, report.facts("x", []), 3)
    assert "inf" not in said
    rows = [line.split() for line in said.splitlines() if line.startswith("fine-tuned")]
    assert rows[0] == ["fine-tuned", "nan"]
    assert rows[-1][1:4] == ["8", "2.0", "0.500"]


def test_fewer_examples_than_a_batch_name_steps():
    """Epoch 3.2 was named as the lowest of --epochs=2."""
    found = {}
    for draw in range(2):
        for count in (10, 64):
            found[curves_report.FINE, count, draw] = [
                {"step": step, "epoch": step * 32 / count, "train_loss": 0.5}
                | {"test_loss": (step - 2) ** 2 + draw, "train_accuracy": 0.5}
                | {"test_accuracy": 0.5}
                for step in (1, 2, 3, 4)
            ]
    text = curves_report._epochs(found, [10, 64], [curves_report.FINE])
    *_, few, many, note = text.splitlines()
    assert re.split(r"\s{2,}", few)[:4] == ["fine-tuned", "10", "step 2", "0.500"]
    assert re.split(r"\s{2,}", many)[:4] == ["fine-tuned", "64", "1.0", "0.500"]
    assert note == "10 examples are fewer than a batch: a step is 3.2 epochs"
