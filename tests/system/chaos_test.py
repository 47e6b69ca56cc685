"""Three faults of the chaos script, and that it notices what is lost."""

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


@pytest.mark.parametrize("lost", ["loss", "line", "weights"])
def test_a_loss_is_noticed(broken, tmp_path, lost):
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


STARTED = "5 parameters on 1 x cpu\n"


@pytest.mark.parametrize(
    ("kind", "status", "err"),
    [
        ("term", 1, ""),
        ("term", -15, STARTED),
        ("full", 2, "error: disk\nand more\n"),
        ("full", 2, ""),
        ("kill", 143, ""),
        ("int", 143, STARTED),
    ],
)
def test_a_wrong_end_is_noticed(kind, status, err):
    with pytest.raises(Lost):
        chaos.check_end(Fault(kind, "step"), status, err)


def test_right_ends_and_starts():
    for kind, status, err in [("term", -15, ""), ("full", 2, "error: disk\n")]:
        assert chaos.check_end(Fault(kind, "step"), status, err) == 0
    saved = f"{STARTED}saved step 7; the same command resumes\n"
    assert chaos.check_end(Fault("term", "step"), 143, saved) == 7
    chaos.check_resumed(f"{STARTED}resuming at step 8 of 9\n", 8)
    for line in ("resuming at step 7 of 9\n", "step 1/9, loss 3\n"):
        with pytest.raises(Lost, match="8 was there"):
            chaos.check_resumed(STARTED + line, 8)
