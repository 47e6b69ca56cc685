"""A few faults of the chaos script, and that it sees what is lost."""

import json
import random
import shutil
from types import SimpleNamespace

import pytest
from runs import start

from tests.system import chaos, chaos_process
from tests.system.chaos_process import Fault, Lost


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A run that was broken three times, beside the undisturbed one."""
    folder = tmp_path_factory.mktemp("chaos")
    faults = [Fault("full", "save"), Fault("kill", "save"), Fault("term", "evaluate")]
    ended, rounds = chaos.run(faults, 24, random.Random(0), folder, start)
    return folder, ended, rounds


def test_three_faults_lose_nothing(broken):
    folder, ended, rounds = broken
    assert rounds == 1
    assert set(ended) == {
        ("full", "save", 2),
        ("kill", "save", -9),
        ("term", "evaluate", 143),
    }
    assert chaos_process.newest(folder / "round_1" / "run") == 24


@pytest.mark.parametrize("what", ["loss", "missing line", "weights"])
def test_what_is_lost_is_seen(broken, tmp_path, what):
    source = broken[0] / "round_1"
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    chaos_process.check_same(copy, source)
    path = copy / "run" / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    if what == "missing line":
        path.write_text("".join(lines[:-1]))
    elif what == "loss":
        line = json.loads(lines[3])
        line["loss"] += 1e-7
        path.write_text("".join([*lines[:3], json.dumps(line) + "\n", *lines[4:]]))
    else:
        shutil.rmtree(copy / "run" / "checkpoints" / "24")
    with pytest.raises(Lost, match=r"weights|\['w|step" if what == "weights" else "me"):
        chaos_process.check_same(copy, source)


def said(*lines):
    err = "".join(f"{line}\n" for line in lines)
    return SimpleNamespace(err=err, caught="parameters on" in err)


@pytest.mark.parametrize(
    ("kind", "status", "lines"),
    [
        ("term", 1, []),
        ("term", -15, ["5 parameters on 1 x cpu"]),
        ("full", 2, ["error: disk", "and more"]),
        ("full", 2, []),
        ("full", 1, ["error: disk"]),
        ("kill", 143, []),
        ("int", 143, []),
        ("hup", 1, []),
        ("hup", -1, ["5 parameters on 1 x cpu"]),
        ("hup", 0, ["5 parameters on 1 x cpu"]),
    ],
)
def test_a_wrong_end_is_seen(kind, status, lines):
    with pytest.raises(Lost):
        chaos_process.check_end(said(*lines), Fault(kind, "step"), status)


def test_right_ends():
    ends = [("term", -15, []), ("full", 2, ["error: disk"]), ("kill", -9, [])]
    for kind, status, lines in ends:
        assert chaos_process.check_end(said(*lines), Fault(kind, "step"), status) == -1
    saved = said("5 parameters on 1 x cpu", "saved step 7; the same command")
    assert chaos_process.check_end(saved, Fault("term", "step"), 143) == 7


def test_a_start_from_too_early_is_seen():
    started = "5 parameters on 1 x cpu"
    chaos_process.check_resumed(said(started, "resuming at step 8 of 9"), 8)
    chaos_process.check_resumed(said(started), 8)
    for line in ("resuming at step 7 of 9", "step 1/9, loss 3"):
        with pytest.raises(Lost, match="8 was there"):
            chaos_process.check_resumed(said(started, line), 8)


def test_every_fault_as_often_as_the_others():
    faults = chaos.draw(75, random.Random(1))
    assert {faults.count(fault) for fault in faults} == {3}
    assert len(set(faults)) == 25
