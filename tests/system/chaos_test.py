"""Two faults of the chaos script. Signals: run_resumed_test.py."""

import random

import pytest
from runs import start

from tests.gates import made
from tests.system import chaos
from tests.system.chaos import Fault


@pytest.mark.slow
def test_two_faults_lose_nothing(tmp_path):
    faults = [Fault("full", "save"), Fault("kill", "save")]
    ended = chaos.run(faults, 24, random.Random(0), tmp_path, start)
    assert [status for _, status in ended] == [2, -9]
    assert made.newest(tmp_path / "round_1") == 24
