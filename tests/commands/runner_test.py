"""Runs that a command starts: done once, stopped, resumed, with complete logs."""

import json
import signal
import subprocess
import sys
from argparse import Namespace

import filelock
import pytest

from bert_jax.commands import runner
from bert_jax.commands.runner import Run
from tests.micro import error_line, write_rows


def program(text):
    return (sys.executable, "-c", f"import sys, os, signal, time\n{text}")


# A program that makes its folder.
MAKES = "os.makedirs(sys.argv[2].removeprefix('--output='))"


def finish(runs, **options):
    given = Namespace(**{"plan": False, "output": runs[0].folder.parent, **options})
    return runner.finish(runs, given, lambda errors: f"report of {len(errors)} errors")


def test_runner_does_not_run_again_what_is_done(tmp_path, capfd):
    ends = program(f"print(sys.argv[1]); {MAKES}")
    fails = program("print('noise'); sys.exit('error: no data')")
    runs = [
        Run("a", tmp_path / "a", ("x",), program=ends),
        Run("b", tmp_path / "b", ("x",), program=fails),
        Run("c", tmp_path / "c", ("x",), (tmp_path / "b",), program=ends),
    ]
    assert finish(runs[:1], plan=True) == 0 and not (tmp_path / "a").exists()
    assert finish(runs) == 2
    out, err = capfd.readouterr()
    assert err.splitlines()[-1] == (
        f"error: 2 of 3 runs failed, the first {tmp_path / 'b'}: no data; the same "
        "command tries them again"
    )
    assert runs[0].is_done and not runs[1].is_done and "report" not in out
    kept = json.loads(runs[0].result.read_text())
    assert kept["command"][-1] == f"--output={tmp_path / 'a'}"
    assert runs[0].printed.read_text() == "x\n" and not runs[2].printed.exists()
    again = [runs[0], *(run._replace(program=ends) for run in runs[1:])]
    assert finish(again) == 0
    out, err = capfd.readouterr()
    assert "run 1 of 3" not in err and out == "report of 0 errors\n"


def test_runner_takes_one_start_at_a_time(tmp_path):
    run = Run("a", tmp_path / "a", ("x",), program=program(MAKES))
    with filelock.FileLock(tmp_path / ".lock"):
        assert "another start is at work there; wait" in error_line(finish, [run])
        assert finish([run], plan=True) == 0
    assert finish([run]) == 0


def test_stopped_run_stops_the_command(tmp_path, capfd):
    stops = program("sys.exit(143)")
    runs = [Run(name, tmp_path / name, ("x",), program=stops) for name in "ab"]
    assert finish(runs) == 143
    assert "the same command goes on" in capfd.readouterr().err
    assert not runs[1].printed.exists()


@pytest.mark.slow
def test_signal_reaches_the_program(tmp_path):
    """It saves and ends, and the command after it."""
    child = """
def save(*_):
    print("saved", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""
    parent = f"""
import sys
from pathlib import Path
from bert_jax.commands import runner
sys.exit(runner.wait({program(child)!r}, Path({str(tmp_path / "log")!r})))
"""
    command = [sys.executable, "-c", parent]
    assert subprocess.run(command, cwd=runner.ROOT, timeout=120).returncode == 143
    assert (tmp_path / "log").read_text() == "saved\n"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_runner_refuses_a_wrong_config_before_anything_runs(tmp_path):
    runs = [
        Run("a", tmp_path / "a", ("x",), program=program("")),
        Run("b", tmp_path / "b", ("--config=configs/tiny.py", "--config.x=1")),
    ]
    assert "no such field" in error_line(finish, runs)
    assert not runs[0].printed.exists()


def written(folder, steps, seeds=1, lines=()):
    train = {"num_steps": steps, "early_stop": 0, "seeds": seeds}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"train": train}))
    write_rows(folder / "metrics.jsonl", [{**line, "time": 0} for line in lines])


def test_log_is_of_every_seed_and_whole(tmp_path):
    lines = [{"step": n, "split": "dev", "f1": n / 4} for n in (2, 4)]
    written(tmp_path / "run", 4, seeds=2)
    for seed in (3, 4):
        written(tmp_path / "run" / f"seed_{seed}", 4, lines=lines)
    run = Run("ner", tmp_path / "run", ("x",))
    found = {seed: x[-1]["f1"] for seed, x in run.log("dev", ["f1"]).items()}
    assert found == {3: 1.0, 4: 1.0}
    line = error_line(run.log, "dev", ["accuracy"])
    assert "has no accuracy on dev; delete " in line
    log = tmp_path / "run" / "seed_4" / "metrics.jsonl"
    log.write_text(log.read_text().splitlines()[0] + "\n")
    assert "cut before the run" in error_line(run.log)
