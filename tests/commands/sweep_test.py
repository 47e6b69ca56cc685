"""Sweeps: the plan, every run once, a search that continues, wrong options."""

import json
from pathlib import Path

import pytest

from bert_jax.commands import sweep
from bert_jax.workdir import metrics
from tests import stand_ins

WRONG = {
    "--nothing": "--config",
    "--config=tiny --grid=seed=1,0 --together": "consecutive",
    "--config=tiny --grid=optimizer.rate=1": "optimizer.rate",
    "--config=tiny --grid=seed=1..2": "a range needs --trials",
}


@pytest.mark.parametrize(("options", "words"), WRONG.items())
def test_option_that_cannot_be(options, words, monkeypatch, capsys):
    # Whether matplotlib is installed or not.
    monkeypatch.setattr(sweep.command_line, "require", lambda *_: None)
    assert sweep.main(options.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and words in line


def test_grid_values_in_brackets():
    found = sweep.parse(["--config=x", "--grid=a=('a','b'),('c',)", "--grid=b='a,b',2"])
    assert found[0].grid == {"a": ["('a','b')", "('c',)"], "b": ["'a,b'", "2"]}


@pytest.mark.slow
def test_sweep_grid_trains_every_point_once(micro, tmp_path, monkeypatch, capfd):
    stand_ins.run_here(monkeypatch)
    command = [
        *(f"--config={micro}", "--config.train.num_steps=3", "--together"),
        *("--grid=optimizer.learning_rate=1e-3,2e-3", "--grid=seed=0,1"),
        f"--output={tmp_path}",
    ]
    assert sweep.main([*command, "--plan"]) == 0
    assert not list(tmp_path.glob("*/config.json"))
    assert sweep.main(command) == 0
    folders = sorted(tmp_path.glob("learning_rate=*/seed_*"))
    assert [f"{x.parent.name[:19]} {x.name}" for x in folders] == [
        f"learning_rate={rate} {seed}"
        for rate in ("1e-3-", "2e-3-")
        for seed in ("seed_0", "seed_1")
    ]
    rates = {f: metrics.read_metrics(f, "train")[-1]["learning_rate"] for f in folders}
    assert rates[folders[2]] == pytest.approx(2 * rates[folders[0]])
    before = capfd.readouterr().out
    assert "optimizer.learning_rate=2e-3" in before
    assert sweep.main(command) == 0  # nothing is left to do
    assert "optimizer.learning_rate=2e-3" in capfd.readouterr().out


@pytest.mark.slow
def test_search_by_optuna_continues(micro, tmp_path, monkeypatch, capfd):
    """A search that was stopped chooses the settings that a longer one would have."""
    pytest.importorskip("optuna", reason="needs the extra search")
    started = stand_ins.run_here(monkeypatch)
    command = [
        *(f"--config={micro}", "--config.train.num_steps=2", "--grid=seed=0,1"),
        *("--grid=optimizer.learning_rate=1e-4..1e-1", "--together"),
        "--grid=train.log_every=1..3",
    ]
    search = [*command, f"--output={tmp_path}", "--trials=2"]
    assert sweep.main([*search, "--plan"]) == 0 and not started
    assert sweep.main(search) == 0 and len(started) == 2
    search[-1] = "--trials=3"
    assert sweep.main(search) == 0 and len(started) == 3
    shown = capfd.readouterr().out
    assert "trial 3 of 3: optimizer.learning_rate=0.0" in shown
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results["scores"]) == 3 and results["score"] == "masked_lm_loss"
    rates = [float(name.split()[0].split("=")[1]) for name in results["scores"]]
    assert all(1e-4 <= rate <= 1e-1 for rate in rates) and len({*rates}) == 3
    assert all({*scores} == {"0", "1"} for scores in results["scores"].values())
    command.append(f"--output={tmp_path / 'other'}")
    assert sweep.main([*command, "--trials=3", "--plan"]) == 0
    first = capfd.readouterr().out.split("other/")[1].split()[0]
    assert (tmp_path / first).exists()


OWN = """from bert_jax.tasks import TASKS
from bert_jax.tasks.pretraining import Pretraining

extends = "micro"


class Focal(Pretraining):
    \"\"\"A task of one's own.\"\"\"


TASKS["focal"] = Focal


def get_config(config):
    config.task.name = "focal"
"""
CHILD = """extends = "own"


def get_config(config):
    config.seed = 3
"""
IMPORTING = """import own_module
extends = "micro"


def get_config(config):
    config.task.name = "named"
"""


@pytest.mark.slow
def test_file_of_another_text_is_another_run(micro, tmp_path, monkeypatch):
    """Where a config names what a file defines that it is, extends or imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("micro.py").write_text(Path(micro).read_text())
    Path("own.py").write_text(OWN)
    Path("own_module.py").write_text(OWN.replace("focal", "named"))
    Path("child.py").write_text(CHILD)
    Path("importing.py").write_text(IMPORTING)
    command = ["--grid=seed=0"]
    command += [f"--config={x}.py" for x in ("own", "child", "importing", "micro")]

    def names():
        return [run.folder.name for run in sweep.plan(*sweep.parse(command))]

    def changed(name, text):
        before = names()
        Path(name).write_text(text)
        return [x != y for x, y in zip(before, names(), strict=True)]

    assert changed("own.py", OWN.replace("one's", "my")) == [True, True, False, False]
    text = (tmp_path / "own_module.py").read_text()
    assert changed("own_module.py", f"{text}A = 1\n") == [False, False, True, False]
    text = (tmp_path / "micro.py").read_text()
    assert changed("micro.py", f"{text}# a comment\n") == [True, True, True, False]
