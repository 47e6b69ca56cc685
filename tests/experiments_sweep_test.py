"""experiments.sweep and experiments.compare."""

import json
import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
import stand_ins
from runs import here
from scipy import stats

from bert_jax.workdir import metrics
from experiments import compare, compared, sweep
from experiments.paper import execution


def a_run(folder, score, seed=0, **fields):
    folder.mkdir(parents=True)
    train = {"seeds": 1, "num_steps": 2, "early_stop": 0}
    config = {"seed": seed, "train": train, "optimizer": fields}
    (folder / "config.json").write_text(json.dumps(config))
    lines = [{"step": 2, "split": "train", "loss": 0.1}]
    lines += [
        {
            "step": step,
            "split": "dev",
            "time": 0.0,
            "accuracy": score - 0.1 * (2 - step),
        }
        for step in (1, 2)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)


def edit(folder, **groups):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | groups))


@pytest.fixture
def runs(tmp_path):
    for seed, score in enumerate((0.5, 0.6, 0.7)):
        a_run(tmp_path / f"low/seed_{seed}", score, seed, rate=1e-4)
        a_run(tmp_path / f"high_{seed}", score + 0.1, seed, rate=2e-4)
    return tmp_path


def test_runs_that_differ_by_their_seed_share_a_row(runs, capsys):
    page = runs / "compare.html"
    given = [str(runs / "low"), str(runs / "high_*"), f"--output={page}"]
    pytest.importorskip("matplotlib", reason="needs the report extra")
    assert compare.main(given) == 0
    header, _, first, second, *rest = capsys.readouterr().out.splitlines()
    assert re.split(r"\s{2,}", header.strip()) == [
        *("runs", "dev accuracy", "95%", "seeds", "less 1", "95%", "pairs")
    ]
    # Student's t for 0.6, 0.7, 0.8: 4.3027 x 0.1 / sqrt(3).
    assert re.split(r"\s{2,}", first) == [
        *("1", "optimizer.rate=0.0002", "0.7", "± 0.25", "3")
    ]
    # All seeds differ by the same: that says nothing about chance.
    assert re.split(r"\s{2,}", second) == [
        *("2", "optimizer.rate=0.0001", "0.6", "± 0.25", "3", "-0.1", "3")
    ]
    assert rest[:2] == ["", compare.LESS]
    text = page.read_text()
    assert text.count("<svg") == 2 and "optimizer.rate=0.0002" in text
    assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", text)


def scored(fields, scores):
    """A group of runs, from their scores by seed."""
    runs = [compared.Run(Path("none"), {"seed": seed}, ()) for seed in scores]
    return compared.Group(fields, runs, [*scores.values()])


def test_a_difference_is_over_the_seeds_that_both_have():
    rng = np.random.default_rng(0)
    first = {seed: float(x) for seed, x in enumerate(rng.normal(0.7, 0.05, 6))}
    second = {seed: first[seed] - 0.1 + 0.01 * seed for seed in (1, 3, 5)}
    second[9] = 0.0  # which the other has not
    found = compared.difference(scored({}, second), scored({}, first))
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
    found = compared.difference(
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
    found = compared.difference(scored({}, second), scored({}, first))
    assert (found.low, found.high) == (-math.inf, math.inf) or all(
        map(math.isnan, (found.mean, found.low, found.high))
    )
    assert compare.cells(found)[1] == ""


def test_a_score_that_is_no_number_stands_last(runs, capsys):
    for name in ("low/seed_1", "high_1"):
        path = runs / name / "metrics.jsonl"
        path.write_text(path.read_text().replace(": 0.7}", ': "nan"}'))
    assert compare.main([str(runs / "low"), str(runs / "high_*")]) == 0
    _, _, first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.split()[1:3] == ["optimizer.rate=0.0001", "0.6"]
    assert second.split()[1:5] == ["optimizer.rate=0.0002", "nan", "3", "+nan"]


def test_many_differences_are_shortened_and_stand_below(tmp_path, capsys):
    for name, rate in (("a", 1e-4), ("b", 2e-4)):
        a_run(tmp_path / name, 0.5 + rate, rate=rate, warmup_fraction=rate)
        task = {
            f"{x}_file": f"/data/{'long/' * 30}{name}.csv" for x in ("train", "dev")
        }
        edit(tmp_path / name, task=task, init_from=f"/models/{name}")
    page = tmp_path / "page.html"
    assert compare.main([str(tmp_path / "[ab]")]) == 0
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert len(header) < 100 and all(len(row) < 100 for row in rows[:2])
    assert rows[0].startswith("1  rate=0.0002 warmup_fraction=0.0002 +3  ")
    assert rows[4].startswith("1: optimizer.rate=0.0002 optimizer.warmup_fraction=0.00")
    assert rows[4].endswith("b.csv init_from=/models/b") and rows[5].startswith("2: ")
    pytest.importorskip("matplotlib", reason="needs the report extra")
    found = compare.groups(compare.find([str(tmp_path / "[ab]")], "dev"), "accuracy")
    from experiments import compare_page

    drawn = compare_page.curves(found, "dev accuracy", "accuracy")
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == [
        "1  rate=0.0002 warmup_fraction=0.0002 +3",
        "2  rate=0.0001 warmup_fraction=0.0001 +3",
    ]
    assert compare.main([str(tmp_path / "[ab]"), f"--output={page}"]) == 0
    assert "<ol><li>optimizer.rate=0.0002 optimizer.warm" in page.read_text()


def test_labels():
    paths = [scored({"init_from": f"/m/{'x' * 40}{n}"}, {0: 0.5}) for n in "ab"]
    short = "x" * 16
    assert compared.labels(paths) == [
        f"init_from=...{short}a",
        f"init_from=...{short}b",
    ]
    numbers = [scored({"rate": n / 3000, "long": ("x",) * 9}, {0: 0.5}) for n in (1, 2)]
    assert compared.labels(numbers)[0] == "rate=0.000333333333333... +1"
    twins = {"model.dtype": "float32", "task.dtype": "a" * 30}  # ends that are alike
    assert compared.labels([scored(twins, {0: 0.5})]) == ["model.dtype=float32 +1"]


@pytest.mark.parametrize("extended", ["seeds", "early stop", "last evaluation"])
def test_a_run_that_is_being_extended_has_not_ended(extended, tmp_path, capsys):
    """Its last line was taken for its result."""
    a_run(tmp_path / "old", 0.5)
    a_run(tmp_path / "new", 0.6, 1)
    growing = tmp_path / "new"
    if extended == "seeds":  # the seeds' own configs are written at the end
        (tmp_path / "new").rename(tmp_path / "seed_0")
        (tmp_path / "new").mkdir()
        (tmp_path / "seed_0").rename(tmp_path / "new" / "seed_0")
        (growing / "config.json").write_text(json.dumps({"train": {"num_steps": 4}}))
        growing /= "seed_0"
    elif extended == "early stop":
        train = {"seeds": 1, "num_steps": 4, "early_stop": 3}
        edit(growing, train=train)
        (growing / "predictions").mkdir()
        os.utime(growing / "predictions", (100, 100))
        line = {"step": 3, "split": "train", "time": 200.0, "loss": 0.1}
        with (growing / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    else:
        (growing / "heartbeat.json").write_text('{"phase": "evaluation"}')
    assert compare.main([str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    out, err = capsys.readouterr()
    assert err.startswith(f"left out: {growing} is at step ") and "0.55" not in out
    (growing / "heartbeat.json").write_text('{"phase": "ended"}')
    if extended == "seeds":
        (tmp_path / "new" / "config.json").write_text('{"train": {"num_steps": 2}}')
    elif extended == "early stop":
        os.utime(growing / "predictions", (300, 300))
    assert compare.main([str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    out, err = capsys.readouterr()
    assert not err and ("0.55" in out or "0.6" in out)


def test_the_best_checkpoint_is_the_one_that_the_run_kept(tmp_path, capsys):
    """It is the best by the task's main score; another may be higher elsewhere."""
    a_run(tmp_path / "run", 0.9)
    edit(tmp_path / "run", evaluate={"checkpoint": "best"})
    (tmp_path / "run" / "best" / "1").mkdir(parents=True)
    assert compare.main([str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[-2:] == ["0.8", "1"]


def test_runs_that_have_not_ended_and_copies_are_left_out(runs, capsys, monkeypatch):
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


def test_a_restarted_run_has_the_seed_that_it_ended_with(runs, capsys):
    (runs / "high_0" / "collapsed_0").mkdir()
    (runs / "high_0" / "collapsed_0" / "metrics.jsonl").write_text("")
    assert compare.main([str(runs / "high_*")]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[2].split()[-1] == "2"  # seeds 1 and 2
    assert "high_1 has the config and seed of" in err and err.endswith("high_0\n")


def test_tags_are_compared_by_f1(tmp_path, capsys):
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


def test_an_edited_config_is_another_run(tmp_path):
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
            execution.write_atomically(path, "{}")
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
        ({"seed": "x"}, "it has seed='x'"),
        ({"seed": None}, "it has seed=None"),
        ({"seed": True}, "it has seed=True"),
        ({"seed": 0, "train": {"num_steps": 2}}, "it has no train.early_stop"),
        ({"seed": 0, "train": {"num_steps": "2"}}, "it has train.num_steps='2'"),
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


def test_a_page_without_matplotlib_is_one_line(runs, capsys, monkeypatch):
    monkeypatch.setattr(compare.importlib.util, "find_spec", lambda name: None)
    assert compare.main([str(runs / "low"), f"--output={runs / 'a.html'}"]) == 2
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        f"error: --output={runs / 'a.html'}: the plots need: pip install '.[report]'"
    ]
    assert not out and not (runs / "a.html").exists()


def test_values_are_split_outside_of_brackets():
    assert sweep.split("1e-4,2e-4") == ["1e-4", "2e-4"]
    assert sweep.split("('a','b'),('c',)") == ["('a','b')", "('c',)"]
    assert sweep.split("'a,b'") == ["'a,b'"]


def test_the_plan_of_a_fine_tuning_has_no_pretraining(micro, tmp_path, capsys):
    grid = ["--grid=seed=0,1", f"--output={tmp_path}", "--plan"]
    assert sweep.main(["--config=configs/finetune/glue.py:task=mrpc", *grid]) == 0
    assert "pre-training" not in capsys.readouterr().out
    assert sweep.main([f"--config={micro}", *grid]) == 0
    assert "pre-training: 2 of " in capsys.readouterr().out


@pytest.mark.heart
def test_a_grid_trains_every_point_once(micro, tmp_path, monkeypatch, capfd):
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
