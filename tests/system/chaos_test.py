"""Three faults of the chaos script."""

import random

import pytest
from runs import start

from tests.gates import made
from tests.system import chaos
from tests.system.chaos import Fault


@pytest.mark.slow
def test_three_faults_lose_nothing(tmp_path):
    faults = [Fault("full", "save"), Fault("kill", "save"), Fault("term", "evaluate")]
    ended = chaos.run(faults, 24, random.Random(0), tmp_path, start)
    assert [status for _, status in ended] == [2, -9, 143]
    assert made.newest(tmp_path / "round_1") == 24
