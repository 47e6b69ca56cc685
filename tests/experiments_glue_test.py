"""The grid of GLUE runs: what is run, resumed, picked, shown and handed in."""

import json
import math
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import stand_ins
from runs import taken

from bert_jax.errors import UserError
from experiments.lib import execution
from experiments.lib.runs import Run
from experiments.paper import glue, glue_table
from experiments.paper.glue_table import Result

ROOT = Path(__file__).resolve().parent.parent

NAMES = {"rte": ["RTE"], "cola": ["CoLA"], "mnli": ["MNLI-m", "MNLI-mm", "AX"]}


def main_run(arguments):
    """In the place of bert_jax.main: notes that it ran, and leaves what a run leaves.

    The score is the seed's tenth plus the learning rate.
    """
    given = stand_ins.options(arguments)
    folder = Path(given["workdir"])
    best = given.get("config.evaluate.checkpoint", "last")
    stand_ins.write_config(folder, 3, evaluate={"checkpoint": best})
    with (folder.parent.parent / "ran.txt").open("a") as file:
        print(folder.parent.name, folder.name, file=file)
    if "BREAK" in given.get("config.init_from", "") and "seed1" in folder.name:
        sys.exit(7)
    rate = float(given["config.optimizer.learning_rate"])
    score = int(given["config.seed"]) / 10 + rate
    with (folder / "metrics.jsonl").open("w") as file:
        for split in ("dev", "dev_mismatched"):
            if split == "dev" or "mnli" in given["config"]:
                for step, value in ((1, "nan"), (2, 0.9), (3, score)):
                    scores = dict.fromkeys(("accuracy", "f1", "matthews"), value)
                    line = {"step": step, "split": split, "time": 0, **scores}
                    print(json.dumps(line), file=file)
    (folder / "predictions").mkdir(exist_ok=True)
    for name in NAMES[given["config"].rpartition("task=")[2]]:
        text = f"index\tprediction\n0\t{folder.name}\n"
        (folder / "predictions" / f"{name}.tsv").write_text(text)


@pytest.fixture
def grid(tmp_path, monkeypatch, capfd):
    stand_ins.put(monkeypatch, main=main_run)
    monkeypatch.setattr(execution, "MAIN", ("main",))
    output = tmp_path / "runs"
    for folder in ("RTE", "CoLA", "MNLI"):
        (tmp_path / folder).mkdir()

    def run(*args):
        status = glue.main([f"--data={tmp_path}", f"--output={output}", *args])
        lines = taken(output / "ran.txt")
        return status, lines, *capfd.readouterr()

    run.output = output
    return run


def contents(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


ARGS = ("--tasks=rte,cola", "--learning_rates=5e-5,3e-5", "--seeds=0,1")


def test_the_grid_is_run_once_and_picked_on_dev(grid):
    status, ran, out, _ = grid(*ARGS)
    assert status == 0
    assert ran == [
        f"{task} lr{rate}-epochs3-seed{seed}"
        for task in ("rte", "cola")
        for rate in ("5e-05", "3e-05")
        for seed in (0, 1)
    ]
    files = contents(grid.output / "submission.zip")
    assert set(files) == {"RTE.tsv", "CoLA.tsv"}
    assert files["RTE.tsv"].endswith("lr5e-05-epochs3-seed1\n")
    missing = out.splitlines()[-1]
    assert missing.startswith("NOT in it")
    for name in ("MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv", "WNLI.tsv", "STS-B.tsv"):
        assert name in missing
    with zipfile.ZipFile(grid.output / "submission.zip") as archive:
        times = {info.date_time for info in archive.infolist()}
    assert times == {(1980, 1, 1, 0, 0, 0)}
    # The same command again: nothing to run, the same words, the same bytes.
    before = (grid.output / "submission.zip").read_bytes()
    assert grid(*ARGS)[:3] == (0, [], out)
    assert (grid.output / "submission.zip").read_bytes() == before
    # A wider grid runs what is new.
    ran = grid(*ARGS[:2], "--seeds=0,1,2")[1]
    assert [line.rpartition("-")[2] for line in ran] == ["seed2"] * 4


def test_a_failed_run_is_tried_again(grid):
    args = ("--tasks=rte", "--learning_rates=5e-5", "--seeds=0,1,2")
    status, ran, out, err = grid(*args, "--init_from=BREAK")
    assert status == 2 and len(ran) == 3 and not out
    last = err.splitlines()[-1]
    assert last.startswith("error: 1 of 3 runs failed, the first ")
    assert last.endswith(
        "seed1: (ended by status 7); the same command tries them again"
    )
    status, ran, _, err = grid(*args, "--init_from=BREAK")
    assert status == 2 and ran == ["rte lr5e-05-epochs3-seed1"]
    status, ran, _, err = grid(*args)
    assert status == 2 and not ran
    assert "--config.init_from=BREAK" in err and "take another --output" in err


def test_the_best_checkpoint_where_predictions_are_its(grid):
    args = ("--tasks=mnli", "--learning_rates=5e-5", "--seeds=0")
    grid(*args, "--config.evaluate.checkpoint=best")
    (folder,) = grid.output.glob("mnli/*/")
    scores = glue.scores(Run("mnli", folder, (), "tiny"))
    assert scores == {"dev": {"accuracy": 0.9}, "dev_mismatched": {"accuracy": 0.9}}
    files = contents(grid.output / "submission.zip")
    assert set(files) == {"MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"}


@pytest.mark.parametrize(
    ("arg", "message"),
    [
        ("--tasks=ax", "--tasks: 'ax' is none of cola"),
        ("--tasks=snli", "--tasks: 'snli' is none of cola"),
        ("--tasks=wnli", "WNLI: no such folder; --data="),
        ("--tasks=", "--tasks: '' names none"),
        ("--seeds=", "--seeds: '' names none"),
        ("--epochs=,", "--epochs: ',' names none"),
        ("--seeds=0,1,0", "--seeds: '0,1,0' names a value twice"),
        ("--seeds=x", "--seeds: invalid list of int value: 'x'"),
        ("--config.seed=3", "seed is set here"),
        ("--config.train.seeds=3", "train.seeds is set here"),
        ("--config.train.num_steps=3", "train.num_steps is set here"),
        ("--epoch=3", "--epoch=3: no such option"),
        ("--config.train.batch_size=0", "train.batch_size=0"),
    ],
)
def test_what_the_grid_does_not_take(grid, arg, message):
    status, ran, _, err = grid("--tasks=rte", arg)
    assert status == 2 and not ran
    assert message in err and len(err.splitlines()) == 1


def test_a_damaged_result_is_one_line(grid):
    args = ("--tasks=rte", "--learning_rates=5e-5", "--seeds=0")
    assert grid(*args)[0] == 0
    (path,) = grid.output.glob("rte/*/result.json")
    path.write_text("{}")
    status, ran, out, err = grid(*args)
    assert (status, ran, out) == (2, [], "")
    line = err.splitlines()[-1]
    assert line.startswith(f"error: {path}: ") and "it has no " in line
    assert line.endswith("; delete it, and the same command makes it again")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", "{}", "it has no train"),
        ("metrics.jsonl", "", "missing or empty: it has no line on dev of step 1"),
        (
            "metrics.jsonl",
            '{"step": 1, "split": "dev", "time": 0}\n',
            "damaged: it has no accuracy on dev",
        ),
    ],
)
def test_what_a_run_has_left_is_checked(tmp_path, name, content, words):
    stand_ins.write_config(tmp_path, 1, evaluate={"checkpoint": "last"})
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=words) as found:
        glue.scores(Run("rte", tmp_path, (), "tiny"))
    assert str(found.value).startswith(f"{tmp_path / name}: ")


def test_table_with_nan_or_missing_split():
    shown = glue_table.table(
        [
            result("mnli", math.nan, seed=0, dev_mismatched=0.5),
            result("mnli", 0.6, seed=1),
        ]
    )
    first, second = (line.split() for line in shown.splitlines()[2:4])
    assert first[:7] == ["mnli", "accuracy", "5e-05", "3", "2", "nan", "60.0"]
    assert second[:8] == [
        *("mnli", "mismatched", "accuracy", "5e-05", "3", "1", "50.0", "50.0")
    ]


def test_fields_reach_every_run(tmp_path):
    (tmp_path / "STS-B").mkdir()
    args = ["--tasks=stsb", "--size=tiny", "--config.train.batch_size=16"]
    options, fields = glue.parse([f"--data={tmp_path}", *args])
    run = glue.Point("stsb", 2e-5, 3.0, 1)
    given = glue.arguments(run, options, fields)
    assert given[0].endswith("configs/finetune/glue.py:size=tiny,task=stsb")
    assert list(given[1:]) == [
        f"--config.task.data_dir={tmp_path}/STS-B",
        "--config.init_from=",
        "--config.optimizer.learning_rate=2e-05",
        "--config.train.num_epochs=3.0",
        "--config.seed=1",
        "--config.train.batch_size=16",
    ]
    assert glue.data_dir("tfds:glue", "stsb") == "tfds:glue/stsb"


def test_sigterm_reaches_the_run(tmp_path):
    (tmp_path / "RTE").mkdir()
    program = tmp_path / "program.py"
    program.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        f"open({str(tmp_path / 'ready')!r}, 'w').close()\n"
        "time.sleep(60)\n"
    )
    start = f"""
import sys
from experiments.lib import execution
from experiments.lib.runs import Run
from experiments.paper import glue
execution.MAIN = (sys.executable, {str(program)!r})
sys.exit(glue.main(["--data={tmp_path}", "--tasks=rte", "--output={tmp_path}"]))
"""
    process = subprocess.Popen([sys.executable, "-c", start], cwd=ROOT)
    while not (tmp_path / "ready").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143


def result(task, value, rate=5e-5, seed=0, **more):
    score = glue.TASKS[task].main_score
    scores = {"dev": {score: value}, **{k: {score: v} for k, v in more.items()}}
    return Result(task, rate, 3.0, seed, Path("none"), scores)


def test_mean_spread_and_best_beside_the_paper():
    shown = glue_table.table(
        [result("cola", value, seed=i) for i, value in enumerate((0.5, 0.6, 0.55))]
        + [result("wnli", 0.5634)]
    )
    first, second = shown.split("\n\n")[:2]
    assert first.splitlines()[2].split() == [
        *("cola", "matthews", "5e-05", "3", "3", "55.0", "5.0", "60.0"),
        *("52.1", "60.5"),
    ]
    assert second.splitlines()[2].split() == [
        *("cola", "matthews", "5e-05", "3", "1", "60.0", "52.1", "60.5")
    ]
    assert second.splitlines()[3].split()[-1] == "56.3"


def test_the_papers_average():
    results = [
        result(task, 0.5)
        for task in ("qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")
    ]
    assert "average" not in glue_table.table(results)
    results.append(result("mnli", 0.6, dev_mismatched=0.8))
    (line,) = (x for x in glue_table.table(results).splitlines() if "average" in x)
    assert line.split() == ["average", "without", "WNLI", "54.4", "79.6", "82.1"]


def test_the_score_of_the_benchmark_has_wnli():
    """BERT-Large's line of the leaderboard gives the abstract's 80.5."""
    line = {
        "qqp": {"f1": 0.721, "accuracy": 0.893},
        "qnli": {"accuracy": 0.927},
        "sst2": {"accuracy": 0.949},
        "cola": {"matthews": 0.605, "accuracy": 0.0},
        "stsb": {"spearman": 0.865, "pearson": 0.876},
        "mrpc": {"f1": 0.893, "accuracy": 0.854},
        "rte": {"accuracy": 0.701},
        "wnli": {"accuracy": 0.651},
    }
    results = [
        Result(task, 5e-5, 3.0, 0, Path("none"), {"dev": scores})
        for task, scores in line.items()
    ]
    results.append(result("mnli", 0.867, dev_mismatched=0.859))
    (shown,) = (x for x in glue_table.table(results).splitlines() if "GLUE score" in x)
    assert shown.split()[-2:] == ["80.5", "80.5"]
    (plain,) = (x for x in glue_table.table(results).splitlines() if "without" in x)
    assert plain.split()[-3:] == ["82.1", "79.6", "82.1"]
    without = [each for each in results if each.task != "wnli"]
    assert "GLUE score" not in glue_table.table(without)


def test_best_of_equal_runs():
    results = [
        result("rte", math.nan),
        result("rte", 0.7, rate=4e-5),
        result("rte", 0.7, rate=3e-5),
    ]
    assert glue_table.picked(results)["rte"].learning_rate == 4e-5


def test_nothing_to_submit(tmp_path):
    path = tmp_path / "submission.zip"
    said = glue_table.submission([result("rte", 0.5)], path)
    assert said == "no test predictions, so nothing to submit"
    assert not path.exists()
