"""experiments.sweeps.sweep: its plan, its table, differences between settings."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from bert_jax.commands import compare, report, sweep
from bert_jax.commands.runner import Run
from bert_jax.workdir import metrics
from tests import stand_ins
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


def test_grid_values_in_brackets():
    found = sweep.parse(["--config=x", "--grid=a=('a','b'),('c',)", "--grid=b='a,b',2"])
    assert found[0].grid == {"a": ["('a','b')", "('c',)"], "b": ["'a,b'", "2"]}


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
