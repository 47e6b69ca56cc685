"""A real run's metrics.jsonl cut after every line, and damaged: each command refuses it
in one line, or gives what it gave before."""

import json
import random
import shutil
from pathlib import Path

import pytest
import reviews
import stand_ins

from bert_jax.errors import UserError
from bert_jax.workdir import metrics
from experiments.claims import grid_spread, learning_curves
from experiments.english import table
from experiments.lib import execution, kept
from experiments.lib.runs import Run
from experiments.paper import __main__ as paper
from experiments.paper import feature_choices, glue, results, whole
from experiments.sweeps import compare, sweep

BOTH = """
from experiments.claims import both_losses
extends = "reviews"

def get_config(config):
    own = both_losses.get_config("tiny")
    config.task.update({"name": own.task.name, "dev_train_file": config.task.dev_file})
    config.evaluate.splits = ("dev", "dev_train")
    return config
"""
FEW = (
    *("--config.train.num_steps=9", "--config.train.log_every=4"),
    *("--config.train.eval_every=3", "--config.train.eval_every_epoch=False"),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Real runs: of one seed, of three, one that stopped early, one scored on test."""
    folder = reviews.write_reviews(tmp_path_factory.mktemp("reviews"))
    (folder / "both.py").write_text(BOTH)
    reviews.run(folder, folder / "one", *FEW, "--config.evaluate.checkpoint=best")
    early = ("--config.train.early_stop=1", "--config.optimizer.learning_rate=0.0")
    reviews.run(folder, folder / "early", *FEW, *early)
    test = f"--config.task.test_file={folder / 'dev.jsonl'}"
    reviews.run(folder, folder / "tested", *FEW, test)
    seeds = ("--config.train.seeds=3", f"--config={folder / 'both.py'}")
    reviews.runs.here(*seeds, *FEW, f"--workdir={folder / 'three'}")
    return folder


def damages(text):
    """Cut after each line (after none: empty) and within each; random bytes; each line
    damaged."""
    lines = text.splitlines(keepends=True)
    rng = random.Random(0)
    for count in range(len(lines)):
        yield b"".join(lines[:count])
        yield b"".join(lines[:count]) + lines[count][: rng.randrange(1, 40)]
        broken = b"\0\xff" + lines[count][2:]
        yield b"".join([*lines[:count], broken, *lines[count + 1 :]])
    yield rng.randbytes(len(text))


def refused_or_same(ask, path):
    """Damages a file in every way; gives how often it was refused, and how often what
    was found is the same as before."""
    whole, before, counts = path.read_bytes(), ask(), {True: 0, False: 0}
    for text in damages(whole):
        path.write_bytes(text)
        try:
            found = ask()
        except UserError as error:
            # `compare` takes it for a run that has not ended yet.
            starts = f"{path}:", f"{path.parent}: has no"
            assert str(error).startswith(starts) and "\n" not in str(error)
            found = None
        assert found is None or found == before, text
        counts[found is None] += 1
    path.write_bytes(whole)
    assert ask() == before
    return counts[True], counts[False]


@pytest.mark.parametrize("name", ["one", "early", "three"])
def test_a_log_that_is_cut_or_damaged_is_refused(runs, name):
    for folder in Run("text", runs / name, ("x",), "tiny").seeds().values():
        run = Run("text", runs / name, ("x",), "tiny")
        refused, same = refused_or_same(run.log, folder / "metrics.jsonl")
        assert refused > 9 and not same
    assert metrics.read(runs / "early", "dev")[-1]["step"] == 6  # of nine


def test_the_scores_on_test_are_the_last_lines(runs, tmp_path):
    """Without them the table had those on dev."""
    shutil.copytree(runs / "tested", tmp_path / "run")
    run = Run("imdb", tmp_path / "run", ("x",), "tiny")
    said = {"dev": {"accuracy": 0.5}, "test": {"accuracy": 0.5}}
    kept.write(run.result, {"baseline": said})
    log, column = run.folder / "metrics.jsonl", whole.column("imdb")
    assert refused_or_same(lambda: results.of_run(run, column), log)[1] == 0
    last = metrics.read(run.folder, "test")[-1]["accuracy"]
    assert results.of_run(run, column) == {0: 100 * last}


def test_a_missing_seed_is_refused(runs, tmp_path):
    shutil.copytree(runs / "three", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "seed_1")
    with pytest.raises(UserError, match="has 2 of 3 seeds; delete "):
        Run("text", tmp_path / "run", ("x",), "tiny").log()


def test_features_take_whole_logs_only(runs, tmp_path):
    shutil.copytree(runs / "three", tmp_path / "run")
    run = Run("last", tmp_path / "run", ("x",), "tiny")
    kept.write(run.result, {"seconds": 1.0})
    log = run.folder / "seed_1" / "metrics.jsonl"
    refused, same = refused_or_same(
        lambda: feature_choices.summary(run, "accuracy"), log
    )
    assert refused > 9 and not same


# What its runs are copies of, what is its result (none: what it prints), its options.
COMMANDS = {
    grid_spread: ("three", ["scores"], ["--epochs=2,3", "--batch_sizes=8",
                  "--learning_rates=5e-5", "--examples=6,all"]),
    table: ("three", ["scores"], ["--tasks=sst2", "--seeds=3"]),
    paper: ("three", ["scores", "pretraining"],
            ["table1", "--tasks=sst2", "--seeds=3"]),
    learning_curves: ("three", ["runs"], ["--examples=4,all", "--draws=1",
                      "--seeds=3"]),
    glue: ("one", [], ["--tasks=sst2", "--seeds=0"]),
    sweep: ("one", [], ["--grid=seed=0,1"]),
}  # fmt: skip


@pytest.fixture(params=COMMANDS, ids=lambda module: module.__name__)
def command(request, runs, plain, tmp_path, monkeypatch, capfd):
    """A command whose runs are copies of a real one: gives what it found."""
    pytest.importorskip("matplotlib", reason="needs the report extra")
    module = request.param
    real, parts, own = COMMANDS[module]
    output = tmp_path / "out"

    def main_run(arguments):
        workdir = Path(stand_ins.options(arguments)["workdir"])
        source = plain if workdir.parent.name == "pretraining" else runs / real
        shutil.copytree(source, workdir)
        if real == "one":  # which shows its predictions
            (workdir / "predictions" / "SST-2.tsv").write_text("index\n")

    stand_ins.put(monkeypatch, main=main_run)
    monkeypatch.setattr(execution, "MAIN", ("main",))
    monkeypatch.setattr(learning_curves, "frozen", lambda *_: {})
    data = tmp_path / "data"
    (data / "SST-2").mkdir(parents=True)
    rows = "".join(f"film {n} \t{n % 2}\n" for n in range(60))
    for split in ("train", "dev"):
        (data / "SST-2" / f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}")
    for split in ("train", "test"):
        lines = [{"text": f"film {n}", "label": n % 2} for n in range(20)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (data / f"{split}.jsonl").write_text(text)
    given = [*own, f"--output={output}"]
    if module is sweep:
        given += [f"--config={runs / 'reviews.py'}"]
    else:
        given += [f"--data={data}", "--size=tiny"]
    if module not in (sweep, paper):
        given += [f"--init_from={plain}"]

    def ask():
        capfd.readouterr()
        status = module.main(given)
        out, err = capfd.readouterr()
        if status == 0:
            (file,) = output.rglob("results.json") if parts else [None]
            found = json.loads(file.read_text()) if file else {}
            return [found[part] for part in parts] or out
        lines = err.splitlines()
        assert status == 2 and not [x for x in lines if "Traceback" in x], err
        assert lines[-1].startswith("error: ") and "; " in lines[-1], err
        raise UserError(lines[-1].removeprefix("error: "))

    ask.output = output
    return ask


def test_each_command(command):
    command()
    logs = sorted(command.output.glob("**/metrics.jsonl"))
    seeds = [log for log in logs if log.parent.name == "seed_2"] or logs
    for log in (seeds[-1], *command.output.glob("pretraining/*/metrics.jsonl")):
        refused, same = refused_or_same(command, log)
        assert refused > 9 and not same


@pytest.mark.parametrize("name", ["one", "early"])
def test_compare(runs, tmp_path, capfd, name):
    shutil.copytree(runs / name, tmp_path / "a")

    def ask(*more):
        status = compare.main([str(tmp_path / "a"), *more])
        out, err = capfd.readouterr()
        if status == 0:
            return out, err
        (*_, line) = err.splitlines()
        assert status == 2 and line.startswith("error: ")
        raise UserError(line.removeprefix("error: "))

    log = tmp_path / "a" / "metrics.jsonl"
    refused, same = refused_or_same(ask, log)
    assert refused > 9 and not same
    # Beside another run: left out, and said so, if it lacks the end of its training.
    shutil.copytree(runs / name, tmp_path / "b")
    text = log.read_bytes().splitlines(keepends=True)
    for count in range(len(text)):
        log.write_bytes(b"".join(text[:count]))
        try:
            _, err = ask(str(tmp_path / "b"))
        except UserError:
            continue
        assert err.startswith(f"left out: {tmp_path / 'a'} is at step ")
