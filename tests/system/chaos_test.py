"""Three faults of the chaos script, and that it notices losses."""

import json
import random
import shutil

import pytest
from runs import start

from tests.gates import made
from tests.system import chaos
from tests.system.chaos import Fault, Lost


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """The folder of a run that was broken three times, and the ends of these."""
    folder = tmp_path_factory.mktemp("chaos")
    faults = [Fault("full", "save"), Fault("kill", "save"), Fault("term", "evaluate")]
    return folder, chaos.run(faults, 24, random.Random(0), folder, start)


@pytest.mark.slow
def test_three_faults_lose_nothing(broken):
    folder, ended = broken
    assert [status for _, status in ended] == [2, -9, 143]
    assert made.newest(folder / "round_1") == 24


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["loss", "line", "weights"])
def test_loss_is_noticed(broken, tmp_path, lost):
    straight = broken[0] / "straight"
    copy = tmp_path / "copy"
    shutil.copytree(straight, copy)
    chaos.check_same(copy, straight)
    path = copy / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    if lost == "line":
        path.write_text("".join(lines[:-1]))
    elif lost == "loss":
        line = json.loads(lines[3])
        line["loss"] += 1e-7
        path.write_text("".join([*lines[:3], json.dumps(line) + "\n", *lines[4:]]))
    else:
        shutil.rmtree(copy / "checkpoints" / "24")
    with pytest.raises(
        Lost, match="differs" if lost == "weights" else "is not|metrics"
    ):
        chaos.check_same(copy, straight)
