"""Stand-ins for the programs that experiments.paper starts, and its data."""

import functools
import json
from pathlib import Path

import pytest

from bert_jax.config import configuration
from experiments.paper import __main__ as paper
from experiments.paper import options, runs
from tests import stand_ins
from tests.runs import taken


@functools.cache
def config_of_forty_steps(seeds=1):
    config = configuration.with_defaults()
    config.train.num_steps, config.train.seeds = 40, seeds
    return json.dumps(config.to_dict())


def main_run(arguments):
    """Replaces bert_jax.main: notes that it ran, and leaves the files of a run.

    A system's score is by its folder's name, and a little by the seed.
    """
    given = stand_ins.options(arguments)
    folder = Path(given["workdir"])
    output = next(p for p in folder.parents if p.name in ("pretraining", "finetuning"))
    with (output.parent / "ran.txt").open("a") as file:
        print(folder.relative_to(output.parent), file=file)
    if source := given.get("config.init_from"):
        of_step = Path(source).parent.name == "checkpoints"
        assert (Path(source).parents[1] if of_step else Path(source)).is_dir(), source
    count = int(given.get("config.train.seeds", 1))
    folders = [folder / f"seed_{s}" for s in range(count)] if count > 1 else [folder]
    for each in {folder, *folders}:
        each.mkdir(parents=True, exist_ok=True)
        (each / "config.json").write_text(
            config_of_forty_steps(count if each == folder else 1)
        )
        name = each.name.removeprefix("seed_")
        seed = int(name) if name.isdecimal() else 0
        base = 0.5 if "/ltr-" in str(folder) else 0.7
        score = base + seed / 100 + (seed % 2) / 500 * (base > 0.6)
        write_metrics(each, score)


def write_metrics(folder, score):
    """Writes forty steps of three seconds, and the score on dev at the end."""
    names = ("accuracy", "f1", "matthews", "spearman", "exact_match", "perplexity")
    lines = [
        {"step": step, "split": "train", "time": step * 3.0, "loss": 1.0}
        for step in (10, 20, 30, 40)
    ]
    for split in ("dev", "dev_mismatched"):
        scores = dict.fromkeys(names, score)
        lines.append({"step": 40, "split": split, "time": 0.0, **scores})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)


FOLDERS = ("SST-2", "MRPC", "QNLI", "RTE", "CoLA", "STS-B", "QQP")


@pytest.fixture
def data(tmp_path):
    """Makes every task's files, all empty: the programs do not read them."""
    root = tmp_path / "data"
    names = [f"{name}/{file}.tsv" for name in FOLDERS for file in ("train", "dev")]
    names += ["MNLI/train.tsv", "MNLI/dev_matched.tsv", "SWAG/train.csv"]
    names += ["SWAG/val.csv", "NER/eng.train", "NER/eng.testa"]
    names += [f"squad/{s}-v{v}.json" for s in ("train", "dev") for v in ("1.1", "2.0")]
    names += ["imdb/train.jsonl", "imdb/test.jsonl"]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.fixture
def command(data, micro, tmp_path, monkeypatch, capfd):
    pytest.importorskip("matplotlib", reason="needs the report extra")
    stand_ins.put(monkeypatch, main=main_run)
    output = tmp_path / "out"

    def run(table, *args):
        places = (f"--config={micro}", f"--data={data}", f"--output={output}")
        status = paper.main([table, *places, "--size=tiny", *args])
        ran = taken(output / "ran.txt")
        return status, ran, *capfd.readouterr()

    run.output = output
    return run


def planned(data, *args, table="table5", size="tiny", output="out"):
    given = [table, f"--size={size}", f"--data={data}", f"--output={output}"]
    return runs.plan(options.parse([*given, "--corpus=pydocs", *args]))


def kinds(plan):
    return [run.kind for run in plan]
