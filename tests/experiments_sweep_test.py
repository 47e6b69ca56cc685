"""experiments.sweeps.sweep and experiments.sweeps.compare."""

import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import stand_ins
from compared_runs import a_run, edit
from runs import here
from scipy import stats

from bert_jax.workdir import metrics
from experiments.lib import command_line, runner
from experiments.sweeps import compare, sweep


@pytest.fixture
def runs(tmp_path):
    for seed, score in enumerate((0.5, 0.6, 0.7)):
        a_run(tmp_path / f"low/seed_{seed}", score, seed, rate=1e-4)
        a_run(tmp_path / f"high_{seed}", score + 0.1, seed, rate=2e-4)
    return tmp_path


def test_compare_groups_by_seed(runs, capsys):
    given = [str(runs / "low"), str(runs / "high_*"), f"--output={runs / 'out'}"]
    pytest.importorskip("matplotlib", reason="needs the report extra")
    assert compare.main(given) == 0
    header, _, first, second, *rest = capsys.readouterr().out.splitlines()
    assert re.split(r"\s{2,}", header.strip()) == [
        *("runs", "dev accuracy", "95%", "seeds"),
        *("less row 1", "95% interval", "pairs"),
    ]
    # Student's t for 0.6, 0.7, 0.8: 4.3027 x 0.1 / sqrt(3).
    assert re.split(r"\s{2,}", first) == [
        *("1", "optimizer.rate=0.0002", "0.7", "± 0.25", "3")
    ]
    # All seeds differ by the same: that says nothing about chance.
    assert re.split(r"\s{2,}", second) == [
        *("2", "optimizer.rate=0.0001", "0.6", "± 0.25", "3", "-0.1", "3")
    ]
    assert rest[0].startswith("the best first (higher is better)")
    text = (runs / "out" / "report.md").read_text()
    assert "(scores.png)" in text and "| 1 | optimizer.rate=0.0002 | 0.7 |" in text
    assert {x.name for x in (runs / "out").iterdir()} == {
        *("report.md", "results.json", "scores.png", "steps.png")
    }


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


@pytest.mark.parametrize("seeds", ["0,²", "0", "", "-1,0", "1,0"])
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
    ):
        assert compare.main(given) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and words in line


def test_grid_values_in_brackets():
    assert sweep.split("1e-4,2e-4") == ["1e-4", "2e-4"]
    assert sweep.split("('a','b'),('c',)") == ["('a','b')", "('c',)"]
    assert sweep.split("'a,b'") == ["'a,b'"]


def test_sweep_plan(micro, tmp_path, capsys):
    grid = ["--grid=seed=0,1", f"--output={tmp_path}", "--plan"]
    assert sweep.main(["--config=configs/finetune/glue.py:task=mrpc", *grid]) == 0
    assert sweep.main([f"--config={micro}", *grid]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 * (2 + 2)


@pytest.mark.heart
def test_sweep_grid_trains_every_point_once(micro, tmp_path, monkeypatch, capfd):
    stand_ins.put(monkeypatch, main=lambda given: print(*here(*given), sep=""))
    monkeypatch.setattr(runner, "MAIN", ("main",))
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
    monkeypatch.setattr(runner, "MAIN", ("main",))
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


@pytest.mark.heart
def test_files_are_compared_over_seeds(files, capfd, monkeypatch):
    assert sweep.main(list(COMMAND)) == 0
    out, _ = capfd.readouterr()
    assert "dev masked_lm_loss" in out.splitlines()[0]
    found = rows(out)
    assert set(found) == {"config=focal", "config=micro", "config=fast"}
    assert {seeds for seeds, _ in found.values()} == {"2"}
    assert sorted(path.name.partition("-")[0] for path in Path("sweep").glob("*/")) == [
        *("fast", "focal", "micro")
    ]
    Path("sweep/report.md").unlink(missing_ok=True)
    monkeypatch.setattr(command_line.importlib.util, "find_spec", lambda name: None)
    assert sweep.main([*COMMAND, "--score=masked_lm_accuracy"]) == 0  # all are done
    out, _ = capfd.readouterr()
    assert "dev masked_lm_accuracy" in out and set(rows(out)) == set(found)
    assert not Path("sweep/report.md").exists()  # its plots need matplotlib


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


def scored(fields, scores):
    """A group of runs, from their scores by seed."""
    runs = [compare.Run(Path("none"), {"seed": seed}, ()) for seed in scores]
    return compare.Group(fields, runs, [*scores.values()])


def test_a_difference_is_over_the_seeds_that_both_have():
    rng = np.random.default_rng(0)
    first = {seed: float(x) for seed, x in enumerate(rng.normal(0.7, 0.05, 6))}
    second = {seed: first[seed] - 0.1 + 0.01 * seed for seed in (1, 3, 5)}
    second[9] = 0.0  # which the other has not
    found = compare.difference(scored({}, second), scored({}, first))
    each = np.array([second[seed] - first[seed] for seed in (1, 3, 5)])
    reach = 4.302652729911275 * each.std(ddof=1) / np.sqrt(3)
    assert found.pairs == 3
    assert found.mean == pytest.approx(each.mean())
    assert (found.low, found.high) == pytest.approx(
        (each.mean() - reach, each.mean() + reach)
    )


def test_a_difference_without_common_seeds_is_of_the_means():
    rng = np.random.default_rng(1)
    some, others = rng.normal(0.7, 0.05, 6), rng.normal(0.6, 0.01, 4)
    found = compare.difference(
        scored({}, dict(enumerate(some.tolist()))),
        scored({}, dict(enumerate(others.tolist(), start=20))),
    )
    by_scipy = stats.ttest_ind(some, others, equal_var=False).confidence_interval(0.95)
    assert found.pairs == 0 and found.mean == pytest.approx(some.mean() - others.mean())
    assert (found.low, found.high) == pytest.approx((by_scipy.low, by_scipy.high))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({0: 0.5}, {0: 0.6}),
        ({0: 0.5, 1: 0.7}, {2: 0.6}),
        ({0: 0.5, 1: 0.5}, {2: 0.6, 3: 0.6}),  # no spread
        ({0: 0.5, 1: 0.6}, {0: 0.6, 1: 0.7}),
        ({0: 0.5, 1: math.nan}, {0: 0.6, 1: 0.7}),
        ({0: 0.5, 1: math.nan}, {2: 0.6, 3: 0.7}),
    ],
)
def test_what_says_nothing_about_chance_has_no_interval(first, second):
    found = compare.difference(scored({}, second), scored({}, first))
    assert (found.low, found.high) == (-math.inf, math.inf) or all(
        map(math.isnan, (found.mean, found.low, found.high))
    )
    assert compare._cells(found)[1] == ""


def test_a_run_that_is_being_extended_has_not_ended(tmp_path, capsys):
    """Its last line was taken for its result."""
    a_run(tmp_path / "old", 0.5)
    a_run(tmp_path / "new" / "seed_0", 0.6, 1)
    whole = tmp_path / "new" / "config.json"  # the seeds' own are written at the end
    whole.write_text(json.dumps({"train": {"num_steps": 4}}))
    given = [str(tmp_path / "old"), str(tmp_path / "new")]
    assert compare.main(given) == 0
    out, err = capsys.readouterr()
    assert err.startswith("left out: ") and "seed_0 is at step 2 of 4" in err
    assert "0.55" not in out
    whole.write_text(json.dumps({"train": {"num_steps": 2}}))
    assert compare.main(given) == 0
    out, err = capsys.readouterr()
    assert not err and "0.55" in out
