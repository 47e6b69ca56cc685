"""Comparison of settings: scores over seeds, differences, the report of both."""

import json
import re

import numpy as np
import pytest

from bert_jax.commands import compare, report, sweep
from bert_jax.commands.runner import Run
from tests.micro import error_line


def a_run(folder, score, seed=0, steps=2, **groups):
    """A finished run, untrained: its score on dev rises by 0.1 a step."""
    folder.mkdir(parents=True)
    train = {"seeds": 1, "num_steps": steps, "early_stop": 0}
    config = {"seed": seed, "train": train, "task": {"name": "text"}}
    config |= {"evaluate": {"checkpoint": "last"}} | groups
    (folder / "config.json").write_text(json.dumps(config))
    lines = [
        {"step": n, "split": "dev", "time": 0.0, "accuracy": score - 0.1 * (steps - n)}
        for n in range(1, steps + 1)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    return Run("run", folder, ("x",))


@pytest.fixture
def runs(tmp_path):
    scores = list(enumerate((0.5, 0.6, 0.7)))
    low = [a_run(tmp_path / f"low_{n}", score, n) for n, score in scores]
    high = [a_run(tmp_path / f"high_{n}", score + 0.1, n) for n, score in scores]
    return [*(("rate=1", run) for run in low), *(("rate=2", run) for run in high)]


def rows(text):
    return [re.split(r"\s{2,}", line) for line in text.splitlines()[2:]]


def table(runs, asked=""):
    found, score = compare.settings(runs, asked)
    section = report.Section("", [compare.comparison_table(found, score)])
    return report.format_plain([section])


def test_settings_over_their_seeds(runs):
    said = table(runs)
    first, second, *notes = rows(said)
    # Student's t for 0.6, 0.7, 0.8: 4.3027 x 0.1 / sqrt(3).
    assert first == ["1", "rate=2", "0.7", "± 0.25", "3"]
    # All seeds differ by the same: that says nothing about chance.
    assert second == ["2", "rate=1", "0.6", "± 0.25", "3", "-0.1", "3"]
    assert "(higher is better)" in notes[0][0]


def test_score_that_is_no_number_stands_last(runs):
    for _, run in runs[1::3]:
        path = run.folder / "metrics.jsonl"
        path.write_text(re.sub(r": 0\.7\d*}", ': "nan"}', path.read_text()))
    first, second, *_ = rows(table(runs))
    assert first[1:3] == ["rate=1", "0.6"] and second[1:3] == ["rate=2", "nan"]
    scores = compare.plain(*compare.settings(runs, ""))["scores"]["rate=2"]
    assert scores == {"0": 0.6, "1": None, "2": pytest.approx(0.8)}


def test_best_checkpoint_counts(tmp_path):
    """It is the best by the task's main score. Another may be higher elsewhere."""
    run = a_run(tmp_path / "run", 0.9, evaluate={"checkpoint": "best"})
    (run.folder / "best" / "1").mkdir(parents=True)
    assert rows(table([("a", run)]))[0][-2:] == ["0.8", "1"]


@pytest.mark.slow
def test_report_of_a_comparison_for_a_paper(runs, tmp_path):
    of_runs = {run: name for name, run in runs}
    named = sweep.relabel(of_runs, ["5% & low", "high_rate"])
    found, score = compare.settings(((name, run) for run, name in named.items()), "")
    parts = [compare.comparison_table(found, score), *compare.figures(found, score)]
    said = report.write_report(tmp_path / "out", [report.Section("Rates", parts)], {})
    latex = (tmp_path / "out" / "report.tex").read_text()
    assert "2 & 5\\% \\& low & 0.6 & $\\pm$ 0.25 & 3 & $-$0.1 &  & 3 \\\\\n" in latex
    markdown = (tmp_path / "out" / "report.md").read_text()
    for name in ("scores", "by_step"):
        assert f"![]({name}.png)" in markdown and f"{name}.pdf" in said
        assert (tmp_path / "out" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    line = error_line(sweep.relabel, of_runs, ["a", "b", "c"])
    assert "3 for 2 settings, in this order: rate=1" in line


def scored(scores):
    return compare.Setting("a", scores)


def test_difference_is_over_the_seeds_that_both_have():
    rng = np.random.default_rng(0)
    first = {seed: float(x) for seed, x in enumerate(rng.normal(0.7, 0.05, 6))}
    second = {seed: first[seed] - 0.1 + 0.01 * seed for seed in (1, 3, 5)}
    second[9] = 0.0  # which the other has not
    mean, low, high, pairs = compare.difference(scored(second), scored(first))
    each = np.array([second[seed] - first[seed] for seed in (1, 3, 5)])
    reach = 4.302652729911275 * each.std(ddof=1) / np.sqrt(3)
    assert pairs == 3
    assert mean == pytest.approx(each.mean())
    assert (low, high) == pytest.approx((each.mean() - reach, each.mean() + reach))
    alike = {seed: first[seed] - 0.1 + 1e-8 * seed for seed in (1, 3, 5)}
    _, low, high, _ = compare.difference(scored(alike), scored(first))
    assert (low, high) == (-np.inf, np.inf)
