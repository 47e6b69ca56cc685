"""A fault of the chaos script. Signals: train_test.py, SIGKILL: the gates."""

import random

import pytest

from tests.gates import made
from tests.runs import start
from tests.system import chaos
from tests.system.chaos import Fault


@pytest.mark.slow
def test_full_disk_loses_nothing(tmp_path):
    ended = chaos.run([Fault("full", "save")], 24, random.Random(0), tmp_path, start)
    assert [status for _, status in ended] == [2]
    assert made.newest(tmp_path / "round_1") == 24
