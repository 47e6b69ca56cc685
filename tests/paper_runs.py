"""Programs in the place of those that experiments.paper starts, and its data."""

import json
import sys

import pytest
from runs import taken

from bert_jax.config import configuration
from experiments.paper import __main__ as paper
from experiments.paper import execution, options, runs

# In the place of bert_jax.main: notes that it ran, and leaves what a run leaves. A
# system's score is by its folder's name, and a little by the seed.
PROGRAM = """
import json, os, sys
from pathlib import Path

given = dict(arg.lstrip("-").partition("=")[::2] for arg in sys.argv[1:])
folder = Path(given["workdir"])
print(f"{folder}: 5 parameters on 2 x cpu (data=1)", file=sys.stderr)
output = next(p for p in folder.parents if p.name in ("pretraining", "finetuning"))
with open(output.parent / "ran.txt", "a") as file:
    print(folder.relative_to(output.parent), file=file)
for wrong in os.environ.get("BREAK", "").split():
    if wrong in str(folder):
        print("noise", file=sys.stderr)
        print(f"error: {wrong} is broken", file=sys.stderr)
        status = int(os.environ.get("BREAK_STATUS", 2))
        if status < 0:
            os.kill(os.getpid(), -status)
        sys.exit(status)
source = given.get("config.init_from")
if source:
    step = Path(source).name if Path(source).parent.name == "checkpoints" else ""
    assert (Path(source).parents[1] if step else Path(source)).is_dir(), source
count = int(given.get("config.train.seeds", 1))
seeds = range(count)
folders = [folder / f"seed_{s}" for s in seeds] if count > 1 else [folder]
for each in {folder, *folders}:
    each.mkdir(parents=True, exist_ok=True)
    config = Path(sys.argv[0]).with_name("config.json").read_text()
    (each / "config.json").write_text(config)
    name = each.name.removeprefix("seed_")
    seed = int(name) if name.isdecimal() else 0
    bases = {"/ltr-": 0.5, "/gpt-": 0.6, "/elmo-": 0.4}
    base = next((s for name, s in bases.items() if name in str(folder)), 0.7)
    score = base + seed / 100 + (seed % 2) / 500 * (base > 0.6)
    names = ("accuracy", "f1", "matthews", "spearman", "exact_match", "perplexity")
    with open(each / "metrics.jsonl", "w") as file:
        for step in (10, 20, 30, 40):
            print(json.dumps({"step": step, "split": "train", "time": step * 3.0,
                              "loss": 1.0}), file=file)
        for split in ("dev", "dev_mismatched"):
            print(json.dumps({"step": 40, "split": split, "time": 0.0,
                              **dict.fromkeys(names, score)}), file=file)
"""
BUDGET = """
import json, os, sys
from pathlib import Path
given = dict(arg.lstrip("-").partition("=")[::2] for arg in sys.argv[1:])
if os.environ.get("BREAK") == "budget":
    print("error: no text", file=sys.stderr)
    sys.exit(2)
words = int(given["words"])
budget = {"steps": 40, "words": words + 5.0, "positions": 1000, "parameters": 12,
          "flops": 1e9}
path = Path(given["output"])
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text(json.dumps(budget))
with open(path.parents[1] / "ran.txt", "a") as file:
    print("budget of", path.name.partition("-")[0], file=file)
"""
FEATURES = """
import json, os, sys
from pathlib import Path
given = dict(arg.lstrip("-").partition("=")[::2] for arg in sys.argv[1:])
folder = Path(given["output"])
folder.mkdir(parents=True, exist_ok=True)
restarts = [0.5, 0.52, 0.51][: int(given["seeds"])]
choices = {"embeddings": 0.2, "last": 0.0, "sum_all": 0.3}
found = {name: {"dev": {"restarts": [more + x for x in restarts]}}
         for name, more in choices.items()}
given = {"choices": found, "score": os.environ.get("SCORE", "f1")}
(folder / "results.json").write_text(json.dumps(given))
"""
FOLDERS = ("SST-2", "MRPC", "QNLI", "RTE", "CoLA", "STS-B", "QQP")


@pytest.fixture
def data(tmp_path):
    """Every task's files, empty: the programs do not read them."""
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
    config = configuration.defaults()
    config.train.num_steps = 40
    files = {"main.py": PROGRAM, "features.py": FEATURES, "budget.py": BUDGET}
    files["config.json"] = json.dumps(config.to_dict())
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    program = (sys.executable, str(tmp_path / "main.py"))
    monkeypatch.setattr(execution, "MAIN", program)
    features = (sys.executable, str(tmp_path / "features.py"))
    monkeypatch.setattr(runs, "FEATURES", features)
    budget = (sys.executable, str(tmp_path / "budget.py"))
    monkeypatch.setattr(execution, "BUDGET", budget)
    output = tmp_path / "out"

    def run(table, *args):
        given = [table, f"--data={data}", f"--output={output}"]
        own = table == "table6" or any(arg.startswith("--systems") for arg in args)
        given.append("--corpus=pydocs" if own else f"--config={micro}")
        status = paper.main([*given, "--size=tiny", *args])
        ran = taken(output / "ran.txt")
        return status, ran, *capfd.readouterr()

    run.output = output
    return run


def planned(data, *args, table="table5", size="tiny", output="out"):
    given = [table, f"--size={size}", f"--data={data}", f"--output={output}"]
    return runs.plan(options.parse([*given, "--corpus=pydocs", *args]))


def kinds(plan):
    return [run.kind for run in plan]
