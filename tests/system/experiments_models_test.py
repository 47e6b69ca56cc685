"""A slice of the campaign on the commands that read models."""

from pathlib import Path

import pytest

from tests.system import experiments_models as models
from tests.system.experiments_commands import steady
from tests.system.experiments_faults import report

SEED = 3
SLICE = [12, 29, 39, 140]  # of triviaqa


def test_a_slice():
    """Of commands that read no model, which are quick."""
    found = models.run(SLICE, SEED)
    kinds = {kind.rpartition(", ")[2] for _, kind, _, _ in found}
    assert kinds == {"damaged", "arguments", "killed"}
    said = report(found, SEED, "experiments_models")
    assert said.endswith("\n\n0 failed"), said


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ("error: in/model/config.json: not JSON", True),
        ("error: in/model: has no weights", True),
        ("error: something is wrong", False),
        ("error: in/model: wrong\nmore", False),
    ],
)
def test_a_line_names_the_file(told, named):
    assert models.named(Path("in/model/config.json"), told) == named


def test_what_differs_from_start_to_start_is_left_out():
    found = {"a": [{"seconds": 1.5, "f1": 0.5}], "word2vec, other words": 3}
    assert steady(found) == {"a": [{"f1": 0.5}]}
