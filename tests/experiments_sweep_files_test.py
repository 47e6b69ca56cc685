"""experiments.sweeps.sweep over config files of one's own."""

import re
from pathlib import Path

import pytest
import stand_ins
from compared_runs import a_run
from runs import here

from experiments.lib import command_line, execution
from experiments.sweeps import compare, sweep

OWN = """from bert_jax.tasks import TASKS
from bert_jax.tasks.pretraining import Pretraining

extends = "micro"


class Focal(Pretraining):
    \"\"\"A task of one's own.\"\"\"


TASKS["focal"] = Focal


def get_config(config, rate=0.001):
    config.task.name = "focal"
    config.optimizer.learning_rate = float(rate)
"""
RATE = 'extends = "micro"\n\n\ndef get_config(config):\n'
RATE += "    config.optimizer.learning_rate = 0.002\n"


@pytest.fixture
def files(micro, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("focal", OWN), ("fast", RATE)):
        Path(f"{name}.py").write_text(text)
    Path("micro.py").write_text(Path(micro).read_text())
    monkeypatch.setattr(execution, "MAIN", ("main",))
    stand_ins.put(monkeypatch, main=lambda given: print(*here(*given), sep=""))


COMMAND = (
    *("--config=focal.py", "--config=micro.py", "--config=fast.py", "--together"),
    *("--grid=seed=0,1", "--output=sweep", "--config.train.num_steps=4"),
    "--config.train.eval_every=2",
)


def rows(text):
    """Name, seeds and pairs of each row of the table."""
    lines = [re.split(r"\s{2,}", line) for line in text.splitlines()[2:5]]
    return {line[1]: (line[4], line[-1]) for line in lines}


def test_files_are_compared_over_seeds(files, capfd, monkeypatch):
    assert sweep.main(list(COMMAND)) == 0
    out, err = capfd.readouterr()
    assert "dev masked_lm_loss" in out.splitlines()[0]
    found = rows(out)
    assert set(found) == {"config=focal", "config=micro", "config=fast"}
    assert {seeds for seeds, _ in found.values()} == {"2"}
    assert sorted(path.name.partition("-")[0] for path in Path("sweep").glob("*/")) == [
        *("fast", "focal", "micro")
    ]
    if "left out" not in err:  # matplotlib is there
        assert Path("sweep/compare.png").read_bytes().startswith(b"\x89PNG")
        assert Path("sweep/compare.html").read_text().count("<svg") == 2
        assert "written: sweep/compare.html, sweep/compare.png" in out
    for path in Path("sweep").glob("compare.*"):
        path.unlink()
    monkeypatch.setattr(command_line.importlib.util, "find_spec", lambda name: None)
    assert sweep.main([*COMMAND, "--score=masked_lm_accuracy"]) == 0  # all are done
    out, err = capfd.readouterr()
    assert "dev masked_lm_accuracy" in out and set(rows(out)) == set(found)
    assert "left out: the plots, sweep/compare.html and compare.png, which need " in err
    assert "pip install -e '.[report]'" in err
    assert not list(Path("sweep").glob("compare.*"))


def plan(*arguments):
    return [run.folder.name for run in sweep.plan(*sweep.parse(arguments))]


def test_a_file_of_another_text_is_another_run(files):
    command = ["--config=focal.py", "--config=micro.py", "--grid=seed=0"]
    before = plan(*command)
    Path("focal.py").write_text(OWN.replace("one's", "my"))
    Path("micro.py").write_text(Path("micro.py").read_text() + "# a comment\n")
    after = plan(*command)
    assert before[0] != after[0]  # what it defines may have changed
    assert before[1] == after[1]  # its fields are the same, and it defines nothing


def test_what_cannot_be_swept_is_one_line(files, capsys):
    for given, words in (
        (["--config=focal.py"], "one run: name a --grid"),
        (["--config=focal.py", "--config=focal.py"], "names a config file twice"),
        (["--grid=seed=0,1"], "--config"),
        (["--config=fokal.py", "--grid=seed=0"], "did you mean focal.py?"),
    ):
        assert sweep.main([*given, "--plan"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and words in line


def test_names_of_the_rows():
    assert sweep._names(["a/x.py", "y.py:size=tiny"]) == {
        "a/x.py": "x",
        "y.py:size=tiny": "y-tiny",
    }
    assert sweep._names(["a/x.py", "b/x.py"]) == {s: s for s in ("a/x.py", "b/x.py")}


def test_one_point_a_run_is_no_curve(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the report extra")
    files = ["--config=configs/tiny.py", "--config=configs/base.py"]
    options, fields = sweep.parse([*files, f"--output={tmp_path}"])
    runs = sweep.plan(options, fields)
    for run in runs:
        a_run(run.folder, 0.5)
        path = run.folder / "metrics.jsonl"
        lines = path.read_text().splitlines()
        path.write_text("\n".join([lines[0], lines[-1]]) + "\n")
    assert "written: " in sweep._compare(options, runs)
    assert "--config.train.eval_every=N gives more" in capsys.readouterr().err


def test_the_score_is_one_that_all_runs_have(tmp_path):
    for name in "ab":
        a_run(tmp_path / name, 0.5)
    path = tmp_path / "a" / "metrics.jsonl"
    path.write_text(path.read_text().replace('"accuracy"', '"focal": 1, "accuracy"'))
    both = path.read_text().replace('"accuracy"', '"masked_lm_loss": 2, "accuracy"')
    runs = compare.find([str(tmp_path / "a"), str(tmp_path / "b")], "dev")
    assert compare.choose(runs, "", "dev") == "accuracy"
    assert compare.choose(runs[:1], "", "dev") == "focal"
    path.write_text(both)  # a pre-training, whatever loss it trains
    runs = compare.find([str(tmp_path / "a")], "dev")
    assert compare.choose(runs, "", "dev") == "masked_lm_loss"
