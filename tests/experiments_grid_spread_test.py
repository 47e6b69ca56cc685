"""The grid's spread by number of examples: subsets, runs, statistics, verdicts."""

import argparse
import json
import random
from pathlib import Path

import numpy as np
import pytest
import stand_ins
from runs import taken

from experiments.claims import grid_spread, spread_report
from experiments.lib import execution, plots, report


def main_run(arguments):
    """In the place of bert_jax.main.

    The points of the grid differ by their rate, the more the fewer examples there are;
    seeds differ by chance.
    """
    given = stand_ins.options(arguments)
    folder = Path(given["workdir"])
    output = folder.parents[2]
    with (output / "ran.txt").open("a") as file:
        print(folder.relative_to(output), file=file)
    data = Path(given["config.task.data_dir"])
    count = len((data / "train.tsv").read_text().splitlines()) - 1
    assert (data / "dev.tsv").exists()
    rate = float(given["config.optimizer.learning_rate"])
    stand_ins.write_config(folder, 3, int(given["config.train.seeds"]))
    for seed in range(int(given["config.train.seeds"])):
        each = folder / f"seed_{seed}"
        each.mkdir(parents=True)
        chance = random.Random(f"{folder} {seed}").gauss(0, 0.002)
        accuracy = 0.8 + chance + rate * 1e4 / count
        line = {"step": 3, "split": "dev", "time": 0, "accuracy": accuracy}
        (each / "metrics.jsonl").write_text(json.dumps(line) + "\n")


@pytest.fixture
def command(plain, tmp_path, monkeypatch, capfd):
    pytest.importorskip("matplotlib", reason="needs the report extra")
    stand_ins.put(monkeypatch, main=main_run)
    monkeypatch.setattr(execution, "MAIN", ("main",))
    folder = tmp_path / "SST-2"
    folder.mkdir()
    (tmp_path / "STS-B").mkdir()
    lines = [f"film {n} \t{int(n % 3 == 0)}\n" for n in range(60)]
    (folder / "train.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    (folder / "dev.tsv").write_text("sentence\tlabel\n" + "".join(lines[:9]))
    output = tmp_path / "out"

    def run(*args):
        given = [f"--data={tmp_path}", f"--init_from={plain}", f"--output={output}"]
        small = ("--size=tiny", "--examples=6,all", "--epochs=2,3", "--batch_sizes=8")
        status = grid_spread.main([*given, *small, *args])
        ran = taken(output / "ran.txt")
        return status, ran, *capfd.readouterr()

    run.output, run.data = output, folder
    return run


def test_the_whole_command(command):
    status, ran, out, err = command("--seeds=4")
    assert status == 0, err
    assert len(ran) == 2 * 3 * 2  # numbers of examples, rates, epochs
    found = json.loads((command.output / "results.json").read_text())
    assert found["verdict"] == "reproduced"
    assert "reproduced at this size" in out
    assert "100,000 and more examples, not of 60" in out
    assert np.shape(found["scores"]["6"]) == (6, 4)
    assert "of seeds: their deviation at batch 8, rate 3e-05, 3 epochs" in out
    assert (command.output / "spread.png").read_bytes().startswith(b"\x89PNG")
    (path,) = command.output.glob("data/*-6/SST-2/train.tsv")
    header, *rows = path.read_text().splitlines()
    assert header == "sentence\tlabel"
    assert sorted(row[-1] for row in rows) == [*"000011"]
    (whole,) = command.output.glob("data/*-60/SST-2/train.tsv")
    assert set(rows) < set(whole.read_text().splitlines())
    # Again: nothing to run; a rate more runs its own.
    status, ran, again, _ = command("--seeds=4")
    assert (status, ran) == (0, []) and again.partition("\n\n")[2] in again
    ran = command("--seeds=4", "--learning_rates=5e-5,4e-5,3e-5,2e-5")[1]
    assert len(ran) == 4 and all("lr4e-05" in line for line in ran)


def grid(seed, points=18, seeds=5, own=2.0, chance=1.0):
    """Scores with known spreads: of the points, of the seeds, of chance."""
    rng = np.random.default_rng(seed)
    effects = own * rng.normal(size=(points, 1)) + rng.normal(size=(1, seeds))
    return 80 + effects + chance * rng.normal(size=(points, seeds))


def test_the_variance_is_the_analysis_of_variances():
    scores = grid(0)
    points, seeds = scores.shape
    rows, columns = scores.mean(axis=1), scores.mean(axis=0)
    whole = scores.mean()
    between = seeds * np.sum((rows - whole) ** 2) / (points - 1)
    rest = scores - rows[:, None] - columns[None] + whole
    residual = np.sum(rest**2) / ((points - 1) * (seeds - 1))
    expected = (between - residual) / seeds
    assert spread_report.variance(scores) == pytest.approx(expected)


def test_chance_alone_has_no_variance():
    """Where seeds differ at random, the deviation over the grid is not 0; this is."""
    found = [spread_report.spread(grid(seed, own=0.0), 9) for seed in range(200)]
    assert np.mean([each.deviations for each in found]) == pytest.approx(1, abs=0.05)
    variances = [each.variance for each in found]
    assert abs(np.mean(variances)) < 3 * np.std(variances) / np.sqrt(200)


def test_a_spread_in_numpy():
    scores = grid(1, seeds=3)
    found = spread_report.spread(scores, 4)
    assert found.mean == pytest.approx(np.mean(scores))
    for seed in range(3):
        own = scores[:, seed]
        assert found.ranges[seed] == max(own) - min(own)
        assert found.deviations[seed] == pytest.approx(np.std(own, ddof=1))
        others = [s for s in range(3) if s != seed]
        pair = np.cov(scores[:, others[0]], scores[:, others[1]])[0, 1]
        pseudo = 3 * found.variance - 2 * pair
        assert found.parts[seed] == pytest.approx(pseudo)
    assert found.seeds == pytest.approx(np.std(scores[4], ddof=1))
    assert found.parts.mean() == pytest.approx(found.variance)


@pytest.mark.parametrize(
    ("small", "large", "word"),
    [(3.0, 0.3, "reproduced"), (0.3, 3.0, "contradicted"), (0.0, 0.0, "undecided")],
)
def test_verdicts(small, large, word):
    parts = {
        100: spread_report.spread(grid(2, own=small), 9).parts,
        900: spread_report.spread(grid(3, own=large), 9).parts,
    }
    verdict = spread_report.judged(parts)
    assert verdict.word == word
    said = spread_report.said(verdict, 900)
    assert f"(appendix A.3): {word} at this size" in said
    assert "100 examples less 900: " in said
    assert spread_report.judged({100: parts[100]}) is None


def test_nan_score_has_no_spread(tmp_path, monkeypatch):
    """It was printed as 0.00, with an interval from 0 to infinity."""
    monkeypatch.setattr(plots, "lines", lambda panels: None)
    monkeypatch.setattr(plots, "save", lambda figure: b"")
    rng = np.random.default_rng(0)
    found = {count: rng.normal(80, 1, (3, 4)) for count in (10, 20)}
    found[10][1, 2] = np.nan
    given = argparse.Namespace(output=tmp_path, task="sst2", batch_sizes=[8])
    # In no order: the middle is 3e-5.
    given.learning_rates, given.epochs = [2e-5, 5e-5, 3e-5], [2.0]
    points = [(8, rate, 2.0) for rate in given.learning_rates]
    said = spread_report.write(given, points, found, report.facts("x", []))
    (few,) = (row for row in said.splitlines() if row.startswith("      10  "))
    assert few.split()[1:5] == ["nan"] * 4 and "inf" not in said
    own = found[10][2].std(ddof=1)  # nothing is wrong at this point of the grid
    assert few.split()[5:] == [f"{own:.2f}"] and "rate 3e-05" in said
    assert "points squared, without an interval (a score is not a number)" in said


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--data=nowhere"], "no such folder; --data=nowhere"),
        (["--task=snli"], "'snli' is none of"),
        (["--tasks=rte"], "no such folder"),
        (["--data=tfds:glue"], "--data=tfds:glue: a folder is required"),
        (["--task=stsb"], "--task=stsb: take a task with classes"),
        (["--seeds=2"], "--seeds=2: at least 3"),
        (["--examples=61"], "'61' is not a number from 2 to the 60"),
        (["--batch_sizes=x"], "--batch_sizes: invalid list of int value: 'x'"),
        (["--batch_sizes=8,8"], "--batch_sizes: '8,8' names a value twice"),
        (["--learning_rates=1e-5,1e-5", "--epochs=2"], "names a value twice"),
        (["--init_from=nowhere"], "nowhere"),
        (["--learning_rates=1e-5", "--epochs=2"], "the grid has one point"),
        (["--config.train.batch_size=4"], "the grid sets it; see --batch_sizes"),
        (["--config.train.seeds=4"], "train.seeds is set here"),
        (["--config.nothing=4"], "no such field"),
        (["--config.optimizer.warmup_steps=-1"], "optimizer.warmup_steps=-1"),
        (["--nothing=4"], "--nothing=4: no such option"),
    ],
)
def test_bad_input_is_one_line(command, args, message):
    status, ran, _, err = command(*args)
    assert status == 2 and not ran
    assert message in err and err.startswith("error: ") and err.count("\n") == 1


def test_bad_files_are_one_line(command):
    (command.data / "train.tsv").write_text("text\tlabels\na\t1\n")
    status, _, _, err = command()
    assert status == 2 and "train.tsv:1: no column 'label'" in err
    (command.data / "train.tsv").write_text("")
    assert "the file is empty" in command()[3]
    (command.data / "train.tsv").unlink()
    status, _, _, err = command()
    assert status == 2 and "train.tsv: cannot be read" in err and err.count("\n") == 1


def test_the_plan(command):
    status, ran, out, _ = command("--plan", "--seeds=3")
    assert (status, ran) == (0, []) and not command.output.exists()
    assert "12 left" in out
