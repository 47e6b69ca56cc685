"""experiments.sweeps.sweep and experiments.sweeps.compare."""

import json
import re
import sys

import pytest
import stand_ins
from compared_runs import a_run, edit
from runs import here

from bert_jax.workdir import metrics
from experiments.lib import command_line, execution, kept
from experiments.sweeps import compare, compared, sweep


@pytest.fixture
def runs(tmp_path):
    for seed, score in enumerate((0.5, 0.6, 0.7)):
        a_run(tmp_path / f"low/seed_{seed}", score, seed, rate=1e-4)
        a_run(tmp_path / f"high_{seed}", score + 0.1, seed, rate=2e-4)
    return tmp_path


def test_compare_groups_by_seed(runs, capsys):
    page = runs / "compare.html"
    given = [str(runs / "low"), str(runs / "high_*"), f"--output={page}"]
    pytest.importorskip("matplotlib", reason="needs the report extra")
    assert compare.main(given) == 0
    header, _, first, second, *rest = capsys.readouterr().out.splitlines()
    assert re.split(r"\s{2,}", header.strip()) == [
        *("runs", "dev accuracy", "95%", "seeds", *compared.DIFFERENCE)
    ]
    # Student's t for 0.6, 0.7, 0.8: 4.3027 x 0.1 / sqrt(3).
    assert re.split(r"\s{2,}", first) == [
        *("1", "optimizer.rate=0.0002", "0.7", "± 0.25", "3")
    ]
    # All seeds differ by the same: that says nothing about chance.
    assert re.split(r"\s{2,}", second) == [
        *("2", "optimizer.rate=0.0001", "0.6", "± 0.25", "3", "-0.1", "3")
    ]
    assert rest[:2] == ["", compared.note("accuracy")]
    text = page.read_text()
    assert text.count("<svg") == 2 and "optimizer.rate=0.0002" in text
    assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", text)


def test_a_score_that_is_no_number_stands_last(runs, capsys):
    for name in ("low/seed_1", "high_1"):
        path = runs / name / "metrics.jsonl"
        path.write_text(path.read_text().replace(": 0.7}", ': "nan"}'))
    assert compare.main([str(runs / "low"), str(runs / "high_*")]) == 0
    _, _, first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.split()[1:3] == ["optimizer.rate=0.0001", "0.6"]
    assert second.split()[1:5] == ["optimizer.rate=0.0002", "nan", "3", "+nan"]


def test_compare_takes_the_best_checkpoint(tmp_path, capsys):
    """It is the best by the task's main score; another may be higher elsewhere."""
    a_run(tmp_path / "run", 0.9)
    edit(tmp_path / "run", evaluate={"checkpoint": "best"})
    (tmp_path / "run" / "best" / "1").mkdir(parents=True)
    assert compare.main([str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[-2:] == ["0.8", "1"]


def test_compare_goes_by_the_score_that_selected(tmp_path, capsys):
    """It is `evaluate.score` where the runs have one, and NaN is never the best."""
    for name, score, chosen in (("a", 0.9, 0.1), ("b", 0.5, 0.8), ("c", 0.6, "nan")):
        a_run(tmp_path / name, score, rate=ord(name))
        edit(tmp_path / name, evaluate={"score": "f1:x"})
        path = tmp_path / name / "metrics.jsonl"
        *lines, last = path.read_text().splitlines()
        line = json.dumps(json.loads(last) | {"f1:x": chosen})
        path.write_text("\n".join([*lines, line]) + "\n")
    assert compare.main([str(tmp_path / name) for name in "abc"]) == 0
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert "dev f1:x" in header
    assert [row.split()[2] for row in rows[:3]] == ["0.8", "0.1", "nan"]


def test_compare_leaves_out_unfinished_runs_and_copies(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs)
    train = {"seeds": 1, "num_steps": 9, "early_stop": 0}
    edit(runs / "high_1", train=train)
    a_run(runs / "copy", 0.9, 2, rate=2e-4)
    given = ["high_0", str(runs / "high_0"), "high_1", "high_2", "copy"]
    assert compare.main(given) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[2].split()[-1] == "2"  # seeds 0 and 2, each once
    unfinished, copy = err.splitlines()
    assert unfinished.endswith("high_1 is at step 2 of 9; let it end")
    assert copy.endswith("high_2") and "/copy has the config and seed of" in copy
    # What stopped early has its predictions.
    edit(runs / "high_1", train=train | {"early_stop": 3})
    (runs / "high_1" / "predictions").mkdir()
    assert compare.main(["high_0", "high_1"]) == 0
    assert not capsys.readouterr().err
    (runs / "low" / "seed_0" / "config.json").rename(runs / "kept")
    for name in (1, 2):
        (runs / "low" / f"seed_{name}" / "config.json").unlink()
    assert compare.main(["low"]) == 2
    assert "its seeds have not ended yet" in capsys.readouterr().err


def test_compare_seed_of_a_restarted_run(runs, capsys):
    (runs / "high_0" / "collapsed_0").mkdir()
    (runs / "high_0" / "collapsed_0" / "metrics.jsonl").write_text("")
    assert compare.main([str(runs / "high_*")]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[2].split()[-1] == "2"  # seeds 1 and 2
    assert "high_1 has the config and seed of" in err and err.endswith("high_0\n")


def test_compare_ner_by_f1(tmp_path, capsys):
    for seed, f1 in enumerate((0.5, 0.7)):
        folder = tmp_path / f"run_{seed}"
        a_run(folder, 0.9, seed)
        edit(folder, task={"name": "ner"})
        line = {"step": 2, "split": "dev", "time": 0.0, "precision": 1.0, "f1": f1}
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    assert compare.main([str(tmp_path / "run_*")]) == 0
    header, _, row = capsys.readouterr().out.splitlines()[:3]
    assert "dev f1" in header and "0.6" in row.split()


def test_an_edited_config_is_another_run(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "mine.py"
    folders = []
    for steps in (6, 8, 6):
        file.write_text(
            "extends = 'tiny'\n\n\ndef get_config(config):\n"
            f"    config.train.num_steps = {steps}\n"
        )
        command = [f"--config={file}", "--grid=seed=0", f"--output={tmp_path}"]
        (run,) = sweep.plan(*sweep.parse(command))
        folders.append(run.folder)
    assert folders[0] == folders[2] != folders[1]


def test_a_name_in_many_bytes_is_a_folder(tmp_path):
    long = f"--grid=task.text={'长' * 90},b"
    command = ["--config=configs/finetune/text.py", long, f"--output={tmp_path}"]
    first, second = sweep.plan(*sweep.parse(command))
    for run in (first, second):
        for path in (run.beside(".failed.json"), run.beside(".log")):
            kept.write(path, {})
    assert first.folder.name.startswith("text=长长长")
    assert second.folder.name.startswith("text=b-")


@pytest.mark.parametrize("seeds", ["²,³", "0,²", "0", "", "9" * 5000, "-1,0", "1,0"])
def test_seeds_that_do_not_train_together(seeds, capsys, tmp_path):
    given = [f"--grid=seed={seeds}", "--together", f"--output={tmp_path}", "--plan"]
    assert sweep.main(["--config=configs/tiny.py", *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --")


def test_what_cannot_be_compared_is_one_line(runs, capsys):
    (runs / "empty").mkdir()
    for given, words in (
        ([str(runs / "empty")], "has no run"),
        ([str(runs / "low"), "--score=f1"], "has no f1 on dev; it has accuracy"),
        ([str(runs / "low"), "--score=time"], "has no time on dev"),
        ([str(runs / "low"), "--split=test"], "no scores on test yet"),
        ([str(runs / "low"), "--output=a.txt"], "write FILE.html"),
    ):
        assert compare.main(given) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and words in line


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "it has no seed"),
        ({"seed": 0}, "it has no train.num_steps"),
        ({"seed": 0, "train": []}, "it has no train.num_steps"),
        ({"seed": "x"}, "seed is 'x', not a whole number"),
        ({"seed": None}, "seed is None, not"),
        ({"seed": True}, "seed is True, not"),
        ({"seed": 0, "train": {"num_steps": 2}}, "it has no train.early_stop"),
        ({"seed": 0, "train": {"num_steps": "2"}}, "train.num_steps is '2', not"),
        ([], "not a JSON object, but a list"),
    ],
)
def test_a_damaged_config_is_one_line(runs, capsys, config, words):
    path = runs / "low" / "seed_1" / "config.json"
    path.write_text(json.dumps(config))
    assert compare.main([str(runs / "low")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {path}: ") and words in line


def test_a_line_without_scores_is_one_line(runs, capsys):
    path = runs / "high_0" / "metrics.jsonl"
    lines = [{"step": 2, "split": split, "time": 0.0} for split in ("train", "dev")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert compare.main([str(runs / "high_0")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {path}: ") and "no scores" in line


def test_compare_without_matplotlib(runs, capsys, monkeypatch):
    monkeypatch.setattr(command_line.importlib.util, "find_spec", lambda name: None)
    assert compare.main([str(runs / "low"), f"--output={runs / 'a.html'}"]) == 2
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        f"error: --output={runs / 'a.html'}: the plots need matplotlib: "
        "pip install -e '.[report]'"
    ]
    assert not out and not (runs / "a.html").exists()


def test_grid_values_in_brackets():
    assert sweep.split("1e-4,2e-4") == ["1e-4", "2e-4"]
    assert sweep.split("('a','b'),('c',)") == ["('a','b')", "('c',)"]
    assert sweep.split("'a,b'") == ["'a,b'"]


def test_sweep_plan(micro, tmp_path, capsys):
    grid = ["--grid=seed=0,1", f"--output={tmp_path}", "--plan"]
    assert sweep.main(["--config=configs/finetune/glue.py:task=mrpc", *grid]) == 0
    assert "pre-training" not in capsys.readouterr().out
    assert sweep.main([f"--config={micro}", *grid]) == 0
    assert "pre-training: 2 of " in capsys.readouterr().out


@pytest.mark.heart
def test_sweep_grid_trains_every_point_once(micro, tmp_path, monkeypatch, capfd):
    stand_ins.put(monkeypatch, main=lambda given: print(*here(*given), sep=""))
    monkeypatch.setattr(execution, "MAIN", ("main",))
    command = [
        *(f"--config={micro}", "--config.train.num_steps=3", "--together"),
        *("--grid=optimizer.learning_rate=1e-3,2e-3", "--grid=seed=0,1"),
        f"--output={tmp_path}",
    ]
    assert sweep.main([*command, "--plan"]) == 0
    assert sweep.main([*(x.replace("0,1", "0,1,x") for x in command), "--plan"]) == 2
    assert "must be consecutive" in capfd.readouterr().err
    assert not list(tmp_path.glob("*/config.json"))
    assert sweep.main(command) == 0
    folders = sorted(tmp_path.glob("learning_rate=*/seed_*"))
    assert [f"{x.parent.name[:19]} {x.name}" for x in folders] == [
        f"learning_rate={rate} {seed}"
        for rate in ("1e-3-", "2e-3-")
        for seed in ("seed_0", "seed_1")
    ]
    rates = {f: metrics.read(f, "train")[-1]["learning_rate"] for f in folders}
    assert rates[folders[2]] == pytest.approx(2 * rates[folders[0]])
    before = capfd.readouterr().out
    assert "optimizer.learning_rate=0.002" in before
    assert sweep.main(command) == 0  # nothing is left to do
    assert "optimizer.learning_rate=0.002" in capfd.readouterr().out
    for wrong, words in (
        (["--grid=optimizer.rate=1"], "optimizer.rate"),
        (["--grid=seed=0"], "each field once"),
        (["--grid=train.log_every=1,1"], "names a value twice"),
        (["--config.seed=3"], "the grid sets seed"),
        (["--rate=1"], "no such option"),
    ):
        assert sweep.main([*command, *wrong]) == 2
        line = capfd.readouterr().err.splitlines()[-1]
        assert line.startswith("error: ") and words in line
