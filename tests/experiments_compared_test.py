"""experiments.sweeps.compare: differences, names, and runs that are still growing."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from compared_runs import a_run, edit
from scipy import stats

from experiments.sweeps import compare, compared


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
    assert compared.cells(found)[1] == ""


def test_many_differences_are_shortened_and_stand_below(tmp_path, capsys):
    for name, rate in (("a", 1e-4), ("b", 2e-4)):
        a_run(tmp_path / name, 0.5 + rate, rate=rate, warmup_fraction=rate)
        task = {
            f"{x}_file": f"/data/{'long/' * 30}{name}.csv" for x in ("train", "dev")
        }
        edit(tmp_path / name, task=task, init_from=f"/models/\x1b[2J{name}")
    page = tmp_path / "page.html"
    assert compare.main([str(tmp_path / "[ab]")]) == 0
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert len(header) < 100 and all(len(row) < 100 for row in rows[:2])
    assert rows[0].startswith("1  rate=0.0002 warmup_fraction=0.0002 +3  ")
    assert rows[4].startswith("1: optimizer.rate=0.0002 optimizer.warmup_fraction=0.00")
    assert rows[4].endswith(r"b.csv init_from=/models/\x1b[2Jb") and rows[5].startswith(
        "2: "
    )
    pytest.importorskip("matplotlib", reason="needs the report extra")
    found = compare.groups(compare.find([str(tmp_path / "[ab]")], "dev"), "accuracy")
    assert list(compared.lines(found, "accuracy").lines) == [
        "1  rate=0.0002 warmup_fraction=0.0002 +3",
        "2  rate=0.0001 warmup_fraction=0.0001 +3",
    ]
    assert compare.main([str(tmp_path / "[ab]"), f"--output={page}"]) == 0
    assert "1: optimizer.rate=0.0002 optimizer.warm" in page.read_text()


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
        line = {"step": 3, "time": 200.0}
        lines = {**line, "split": "train"}, {**line, "split": "dev", "accuracy": 0.6}
        with (growing / "metrics.jsonl").open("a") as file:
            file.writelines(json.dumps(each) + "\n" for each in lines)
    else:
        (growing / "heartbeat.json").write_text('{"phase": "evaluation", "step": 2}')
    assert compare.main([str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    out, err = capsys.readouterr()
    assert err.startswith(f"left out: {growing} is at step ") and "0.55" not in out
    (growing / "heartbeat.json").write_text('{"phase": "ended", "step": 3}')
    if extended == "seeds":
        (tmp_path / "new" / "config.json").write_text('{"train": {"num_steps": 2}}')
    elif extended == "early stop":
        os.utime(growing / "predictions", (300, 300))
    assert compare.main([str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    out, err = capsys.readouterr()
    assert not err and ("0.55" in out or "0.6" in out)
