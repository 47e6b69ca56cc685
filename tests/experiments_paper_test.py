"""The paper's tables by one command: what is planned, run, resumed, reported."""

import json
import subprocess
import sys
import time

import pytest

from bert_jax.config import configuration
from bert_jax.errors import UserError
from experiments import running
from experiments.paper import __main__ as paper
from experiments.paper import execution, options, progress, runs, tables, tasks
from experiments.published import TABLE_6

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
    base = 0.5 if "/ltr-" in str(folder) else 0.7
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
    files = {"main.py": PROGRAM, "features.py": FEATURES}
    files["config.json"] = json.dumps(config.to_dict())
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    program = (sys.executable, str(tmp_path / "main.py"))
    monkeypatch.setattr(execution, "MAIN", program)
    features = (sys.executable, str(tmp_path / "features.py"))
    monkeypatch.setattr(runs, "FEATURES", features)
    output = tmp_path / "out"

    def run(table, *args):
        given = [table, f"--data={data}", f"--output={output}"]
        given.append("--corpus=pydocs" if table == "table6" else f"--config={micro}")
        status = paper.main([*given, "--size=tiny", *args])
        path = output / "ran.txt"
        ran = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return status, ran, *capfd.readouterr()

    run.output = output
    return run


def planned(data, *args, table="table5", size="tiny", output="out"):
    given = [table, f"--size={size}", f"--data={data}", f"--output={output}"]
    return runs.plan(options.parse([*given, "--corpus=pydocs", *args]))


def kinds(plan):
    return [run.kind for run in plan]


def test_table_5_is_four_pretrainings_and_five_systems(data):
    plan = planned(data)
    assert kinds(plan).count("pre-training") == 4
    assert len(plan) == 4 + 5 * 5
    text = "\n".join(" ".join(run.arguments) for run in plan)
    for field in ("task.objective=ltr", "task.nsp_loss=False", "corpus.nsp=False"):
        assert text.count(field) == 1
    tuned = [run for run in plan if "--config.task.bilstm=True" in run.arguments]
    assert {run.needs.name.partition("-")[0] for run in tuned} == {"ltr"}
    assert len(tuned) == 5


def test_what_tables_have_in_common_is_run_once(data):
    """The same folders, whatever the table, the tasks asked for and the output."""
    five, one, figure = (
        planned(data, table=name) for name in ("table5", "table1", "figure5")
    )
    both = {run.folder for run in five} & {run.folder for run in one}
    names = sorted(f.parent.name + "/" + f.name.partition("-")[0] for f in both)
    assert len(both) == 5 and "pretraining/mlm" in names
    assert {f.folder for f in figure if f.needs is None} < {f.folder for f in five}
    elsewhere = planned(data, "--tasks=sst2", output="elsewhere")
    ours = {"/".join(run.folder.parts[1:]) for run in five}
    assert {"/".join(run.folder.parts[1:]) for run in elsewhere} < ours


def test_what_shapes_a_run_names_its_folder(data):
    first = planned(data)[0].folder
    assert planned(data)[0].folder == first
    for field in ("--config.train.num_steps=70", "--config.seed=1"):
        assert planned(data, field)[0].folder != first
    # Fine-tuning's fields rename fine-tuning alone.
    other = planned(data, "--finetuning.train.num_steps=70")
    assert other[0].folder == first and other[1].folder != planned(data)[1].folder


def test_a_field_of_the_machine_reaches_all_runs(data):
    plan = planned(data, "--config.model.dtype=bfloat16", "--config.seed=3")
    assert all("--config.model.dtype=bfloat16" in run.arguments for run in plan)
    with_seed = [run for run in plan if "--config.seed=3" in run.arguments]
    assert {run.kind for run in with_seed} == {"pre-training"}


def test_a_field_of_the_recipe_reaches_pretraining_alone(data):
    """Although its name begins as model.attention does, which is the machine's."""
    field = "--config.model.attention_probs_dropout_prob=0.3"
    plan = planned(data, field, "--config.mesh.data=1")
    assert {run.kind for run in plan if field in run.arguments} == {"pre-training"}
    assert all("--config.mesh.data=1" in run.arguments for run in plan)


def test_a_config_of_ones_own_that_changes_names_other_folders(data, tmp_path):
    path = tmp_path / "mine.py"
    text = "extends = 'tiny'\ndef get_config(config):\n    config.seed = {}\n"
    folders = []
    for seed in (1, 2, 1):
        path.write_text(text.format(seed))
        folders.append(planned(data, f"--config={path}")[0].folder)
    assert folders[0] == folders[2] != folders[1]


@pytest.mark.parametrize(("size", "each"), [("tiny", 1), ("base", 5), ("medium", 1)])
def test_seeds_together_in_small_models_only(data, size, each):
    plan = planned(data, "--tasks=sst2", "--seeds=5", size=size)
    assert kinds(plan).count("sst2") == 5 * each
    assert sum("--config.train.seeds=5" in run.arguments for run in plan) == (
        5 if each == 1 else 0
    )


def test_figure_5_starts_from_checkpoints_that_are_kept(data):
    plan = planned(data, "--config.train.num_steps=9000", table="figure5", size="tiny")
    for run in plan:
        if run.kind == "pre-training":
            fields = dict(arg.partition("=")[::2] for arg in run.arguments)
            keep = int(fields["--config.checkpoint.keep_every"])
            assert keep == 1800
            assert keep % int(fields["--config.checkpoint.save_every"]) == 0
    mlm = [run for run in plan if run.needs == plan[0].folder]
    starts = [run.arguments[1].rpartition("/")[2] for run in mlm]
    assert starts == ["1800", "3600", "5400", "7200", plan[0].folder.name]
    assert kinds(plan).count("mnli") == 10 and set(kinds(plan)) == {
        "pre-training",
        "mnli",
    }


def test_table_6_is_the_papers_at_base_and_in_proportion_below():
    for size in ("base", "large"):
        names = [f"L={n} H={h} A={a}" for n, h, a in tables.shapes(size)]
        assert names == list(TABLE_6.rows)
    for size in tables.SIZES:
        shapes = tables.shapes(size)
        assert len(set(shapes)) == 6
        for layers, hidden, heads in shapes:
            assert layers > 0 and hidden % heads == 0
    tiny = tables.build("table6", "tiny")
    assert tiny.systems[3].pretraining == tables.MLM  # shared with the other tables


def test_table_8_shares_the_papers_own_mix(data):
    plan = planned(data, table="table8")
    assert kinds(plan).count("pre-training") == kinds(plan).count("features") == 6
    first = plan[0].folder
    assert first == planned(data, table="table5")[0].folder
    texts = [" ".join(run.arguments) for run in plan if run.needs is None]
    assert "mask_fraction=0.0" in texts[5] and "random_fraction=1.0" in texts[5]


@pytest.mark.parametrize(
    ("size", "choice"), [("tiny", "sum_all"), ("mini", "concat_last_four")]
)
def test_the_best_features_are_those_that_a_size_has(size, choice):
    (column,) = (c for c in tables.build("table8", size).columns if c.key == "features")
    assert column.score == choice
    seven = tables.build("table7", size)
    best = tables.CHOICES[choice]
    assert {pair.first for pair in seven.claims[1].pairs} == {best}
    assert len(seven.claims[1].pairs) == (5 if size == "mini" else 3)
    assert ("stand for them" in seven.note) == (size == "tiny")


def test_the_papers_claims_have_the_papers_figures_on_their_side():
    """Where the paper claims better, its own table says so."""
    for name, size in (("table1", "large"), ("table2", "large"), ("table4", "large"),
                       ("table5", "base"), ("table6", "base"), ("table7", "base"),
                       ("table8", "base")):  # fmt: skip
        table = tables.build(name, size)
        rows = {s.name: table.published.rows.get(s.paper, {}) for s in table.systems}
        found = 0
        for claim in table.claims:
            for pair in claim.pairs:
                both = [rows[s].get(pair.column) for s in (pair.first, pair.second)]
                if None not in both:
                    found += 1
                    less = both[0] - both[1]
                    assert abs(less) < claim.margin if claim.margin else less >= 0
        assert found, name


def test_table_7_runs_features_once_for_all_choices(data):
    plan = planned(data, table="table7")
    assert kinds(plan) == ["pre-training", "ner", "features"]
    assert "--config.tokenizer.lowercase=False" in plan[0].arguments
    assert planned(data, table="features") == plan
    assert "--document_context" not in plan[2].arguments
    assert "--size=128" in plan[2].arguments
    base = planned(data, table="table7", size="base")
    assert {"--document_context", "--size=768"} <= set(base[-1].arguments)
    assert "--config.task.document_context=True" in base[1].arguments


@pytest.mark.parametrize("name", tables.TABLES)
@pytest.mark.parametrize("size", ["tiny", "large"])
def test_every_table_names_the_papers_rows_and_its_own_systems(name, size):
    table = tables.build(name, size)
    systems = {system.name for system in table.systems}
    assert len(systems) == len(table.systems)
    keys = {column.key for column in table.columns}
    for system in table.systems:
        assert not system.paper or system.paper in table.published.rows
    for claim in table.claims:
        for pair in claim.pairs:
            assert {pair.first, pair.second} <= systems and pair.column in keys
    rows = [table.published.rows[s.paper] for s in table.systems if s.paper]
    assert all(keys & row.keys() for row in rows)


def test_the_majority_class_as_a_run_prints_it():
    text = (
        "noise  model  majority baseline?\n\ndev       model  majority baseline\n"
        "--------  -----  -----------------\naccuracy  0.7         0.6838\n"
        "f1      0.8       0.8122\naccuracy_std  0.1\n\nf1  1.0  2.0\n"
    )
    expected = {"dev": {"accuracy": 0.6838, "f1": 0.8122}}
    assert execution._baseline(text) == expected
    assert execution._baseline("step 3 dev: accuracy 0.5") == {}


def test_runs_once_and_says_what_it_found(command):
    args = ("table5", "--tasks=sst2,mrpc", "--seeds=3")
    status, ran, out, err = command(*args)
    assert status == 0 and len(ran) == len(set(ran)) == 4 + 5 * 2
    assert "LTR is worse than MLM on all tasks (section 5.1)" in out
    assert "REPRODUCED: LTR is worse" in out and "not asked for: mnli, qnli" in out
    assert "UNDECIDED: No NSP hurts" in out
    assert "run 14 of 14" in err and "of a kind that has not run yet" in err
    folder = command.output / "table5-tiny"
    results = json.loads((folder / "results.json").read_text())
    found = {(s["system"], s["column"]): s for s in results["scores"]}
    assert found["LTR & No NSP", "sst2"]["seeds"] == pytest.approx(
        {"0": 50.0, "1": 51.0, "2": 52.0}
    )
    assert found["MLM & NSP", "mrpc"]["paper"] == 86.7
    assert results["about"]["devices"] == "2 x cpu"
    assert (folder / "report.txt").read_text() in out
    # Again: nothing runs, the same report.
    status, ran, again, _ = command(*args)
    assert (status, ran) == (0, []) and "all 14 runs are done" in again
    html = (folder / "report.html").read_text()
    assert html.count("<svg") == 3 and "http" not in html.replace(
        "http://www.w3.org", ""
    )
    assert "<script" not in html and "LTR &amp; No NSP" in html


def test_a_run_that_fails_is_shown_and_the_rest_goes_on(command, monkeypatch):
    args = ("table5", "--tasks=sst2,mrpc", "--seeds=2")
    monkeypatch.setenv("BREAK", "no-pairs-")
    status, ran, out, err = command(*args)
    assert status == 2 and len(ran) == 14 - 2  # what starts from it is not run
    assert err.splitlines()[-1].startswith("error: 3 of 14 runs failed")
    assert "no-pairs- is broken" in out and "not run: " in out
    html = (command.output / "table5-tiny" / "report.html").read_text()
    assert "3 runs failed" in html and "no-pairs- is broken" in html
    # It is shown by --plan, and tried again.
    assert "no-pairs- is broken" in command(*args, "--plan")[2]
    monkeypatch.delenv("BREAK")
    status, ran, *_ = command(*args)
    assert status == 0 and len(ran) == 3


@pytest.mark.parametrize("status", [130, 143, -15])
def test_a_signal_ends_all_and_the_same_command_goes_on(command, monkeypatch, status):
    args = ("table5", "--tasks=sst2", "--seeds=2")
    monkeypatch.setenv("BREAK", "no-nsp-loss-")
    monkeypatch.setenv("BREAK_STATUS", str(status))
    ended, ran, _, err = command(*args)
    assert (
        ended == (143 if status < 0 else status)
        and len(ran) == 3
        and "goes on there" in err
    )
    monkeypatch.delenv("BREAK")
    ended, ran, *_ = command(*args)
    assert ended == 0 and len(ran) == 9 - 2


def test_a_killed_run_is_a_failure_with_its_signal(command, monkeypatch, tmp_path):
    (tmp_path / "main.py").write_text(
        "import os, sys; print('halfway', flush=True); os.kill(os.getpid(), 9)"
    )
    status, _, out, _ = command("table1", "--tasks=sst2", "--seeds=2")
    assert status == 2 and "halfway (ended by signal 9)" in out


def test_the_plan_runs_nothing_and_estimates_by_the_runs_own_pace(command):
    args = ("table5", "--tasks=sst2", "--seeds=2")
    status, ran, out, _ = command(*args, "--plan")
    assert (status, ran) == (0, []) and "9 of a kind that has not run yet" in out
    assert not command.output.exists()
    command("table1", "--tasks=sst2", "--seeds=2")
    out = command(*args, "--plan")[2]
    # Of 3 s a step and 40 steps; three pre-trainings and four fine-tunings are left.
    assert "2 of 9 runs done, 7 left: 14 min" in out
    (done,) = (command.output / "pretraining").glob("mlm-*/result.json")
    folder = done.parent
    (folder / "result.json").unlink()
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:2]))
    (line,) = (
        x for x in command(*args, "--plan")[2].splitlines() if x.startswith("begun")
    )
    assert "60 s" in line  # 20 of 40 steps


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "not JSON"), ("[]", "not a JSON object"), ("{}", "it has no seconds")],
)
def test_a_damaged_result_is_one_line(command, text, message):
    args = ("table1", "--tasks=sst2", "--seeds=2")
    command(*args)
    (path,) = (command.output / "pretraining").glob("*/result.json")
    path.write_text(text)
    status, ran, _, err = command(*args)
    assert status == 2 and not ran and message in err and str(path) in err
    assert err.startswith("error: ") and err.count("\n") == 1 and "delete it" in err


def test_a_score_that_is_not_a_number_is_reported(command):
    args = ("table1", "--tasks=sst2", "--seeds=2")
    command(*args)
    (path,) = command.output.glob("finetuning/*/*/seed_1/metrics.jsonl")
    path.write_text(
        path.read_text().replace('"accuracy": 0.', '"accuracy": "nan", "x": 0.')
    )
    status, ran, out, _ = command(*args)
    assert status == 0 and not ran
    assert ["BERT,", "tiny", "nan"] in [line.split() for line in out.splitlines()]
    (cell,) = json.loads((command.output / "table1-tiny" / "results.json").read_text())[
        "scores"
    ]
    assert cell["seeds"]["1"] is None and cell["mean"] is cell["interval_95"] is None


def test_seeds_that_failed_leave_the_claim_undecided(command, monkeypatch):
    monkeypatch.setattr(runs, "_APART", ("tiny",))
    monkeypatch.setenv("BREAK", "seed_2")
    status, _, out, _ = command("table5", "--tasks=sst2", "--seeds=3")
    assert status == 2
    assert "UNDECIDED: LTR is worse" in out and "only 2 of 3 seeds" in out


def test_one_start_at_a_time(command):
    args = ("table1", "--tasks=sst2", "--seeds=2")
    with execution.alone(command.output):
        status, ran, _, err = command(*args)
        assert status == 2 and not ran and "another start" in err
        assert err.count("\n") == 1
        assert command(*args, "--plan")[0] == 0
    assert command(*args)[0] == 0


CHILD = """
import signal, sys, time
def save(*_):
    print("saved", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("begun", flush=True)
time.sleep(60)
"""
PARENT = """
import sys
from pathlib import Path
from experiments import running
from experiments.paper import execution
with execution.alone(Path(sys.argv[1])) as lock:
    program = [sys.executable, "-c", sys.argv[2]]
    running.wait(program, Path(sys.argv[1]) / "log", [lock])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_run_saves_and_ends_when_its_parent_is_killed(tmp_path):
    """And holds the output folder until then."""
    given = [sys.executable, "-c", PARENT, str(tmp_path), CHILD]
    parent = subprocess.Popen(given, cwd=running.ROOT, stderr=subprocess.DEVNULL)
    log = tmp_path / "log"
    wait_for(lambda: log.exists() and "begun" in log.read_text())
    with pytest.raises(UserError, match="another start"), execution.alone(tmp_path):
        pass
    parent.kill()
    parent.wait()
    wait_for(lambda: "saved" in log.read_text())
    wait_for(lambda: is_free(tmp_path))


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_free(folder):
    try:
        with execution.alone(folder):
            return True
    except UserError:
        return False


def test_features_scores_of_another_kind_are_no_f1(command, monkeypatch):
    monkeypatch.setenv("SCORE", "accuracy")
    status, _, _, err = command("table7", "--seeds=2")
    assert status == 2 and "scored by accuracy, not F1" in err.splitlines()[-1]


def test_lost_results_of_features_say_what_to_delete(command):
    command("table7", "--seeds=2")
    (path,) = command.output.glob("features/*/*/results.json")
    path.unlink()
    status, _, _, err = command("table7", "--seeds=2")
    assert status == 2 and f"delete {path.with_name('result.json')}" in err
    path.with_name("result.json").unlink()
    assert command("table7", "--seeds=2")[0] == 0


def test_time_by_phases_and_models(command):
    """The second phase's steps are longer; another model's take another time."""
    command("table1", "--tasks=sst2", "--seeds=2")
    (done,) = (command.output / "pretraining").glob("mlm-*/result.json")
    folder = done.parent
    done.unlink()
    config = json.loads((folder / "config.json").read_text())
    config["phase2"]["fraction"] = 0.5
    (folder / "config.json").write_text(json.dumps(config))
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:2]))  # 20 of 40 steps
    run = runs.Run("pre-training", folder, (), "tiny")
    other = run._replace(folder=folder / "absent", model="base")
    same = run._replace(folder=folder / "absent too")
    found = progress.states([run, other, same])
    assert found[other.folder].left is None
    # Three seconds a step at 128; at 512 the FLOPs are 4.3 times as many.
    assert found[folder].left == pytest.approx(20 * 3 * 4.3, rel=0.01)
    assert found[same.folder].left == pytest.approx(20 * 3 * 5.3, rel=0.01)


def test_features_and_fine_tuning_side_by_side(command):
    status, ran, out, _ = command("table7", "--seeds=3")
    assert status == 0 and len(ran) == 2
    results = json.loads((command.output / "table7-tiny" / "results.json").read_text())
    found = {s["system"]: s for s in results["scores"]}
    assert found["Weighted sum, all layers"]["mean"] == pytest.approx(81.0)
    assert found["Weighted sum, all layers"]["paper"] == 95.5
    assert found["Concatenated, last four"]["seeds"] == {}  # the model is too small
    assert "UNDECIDED: Weighted sum, all layers are the best" in out
    assert "differ by the same" in out


def test_features_that_cannot_start_are_one_line(command, monkeypatch):
    absent = (sys.executable, "-m", "experiments.not_there")
    monkeypatch.setattr(runs, "FEATURES", absent)
    status, _, out, err = command("table7", "--seeds=2")
    assert status == 2 and "No module named experiments.not_there" in out
    assert err.splitlines()[-1].startswith("error: 1 of 3 runs failed")


@pytest.mark.parametrize("table", ["table1", "table6", "figure5", "table8", "imdb"])
def test_other_tables_are_drawn(command, table):
    status, _, _, err = command(table, "--seeds=2")
    assert status == 0, err
    html = (command.output / f"{table}-tiny" / "report.html").read_text()
    assert "<svg" in html and "</html>" in html
    assert ("[3.99]" in html) == (table == "table6")
    assert ("OpenAI GPT" in html) == (table == "table1")


ARGS = ("--corpus=pydocs", "--tasks=sst2")


def test_without_matplotlib_nothing_begins(data, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(paper.importlib.util, "find_spec", lambda name: None)
    given = ["table5", f"--data={data}", f"--output={tmp_path / 'out'}", *ARGS]
    assert paper.main([*given, "--size=tiny"]) == 2
    error = capfd.readouterr().err
    assert error == "error: the report's plots need: pip install '.[report]'\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("table", "args", "message"),
    [
        ("table9", ARGS, "table9: no such table; choose one of table1"),
        ("table5", ("--tasks=swag",), "--tasks: table5 has no task 'swag'; it has"),
        ("table5", ("--corpus=text:no/*.txt",), "--corpus=text:no/*.txt: no file"),
        ("table5", ("--corpus=book:x", *ARGS[1:]), "=book:x: write sentences:GLOB"),
        ("table5", (*ARGS, "--data=nowhere"), "--data=nowhere: no such folder"),
        ("table5", (*ARGS, "--config.task.objective=ltr"), "sets task.objective it"),
        ("table5", (*ARGS, "--finetuning.train.seeds=2"), "sets train.seeds itself"),
        ("table5", (*ARGS, "--config.train.steps=2"), "no such field"),
        ("table5", (*ARGS, "--finetuning.train.steps=2"), "no such field"),
        ("table5", (*ARGS, "--seed=2"), "--seed=2: no such option"),
        ("table5", (*ARGS, "--seeds=0"), "--seeds=0: at least 1"),
        ("table5", (*ARGS, "--config.train.num_steps=4"), "at least 5 are needed"),
        ("table1", (*ARGS, "--size=mini", "--config.train.num_steps=9999"), "warm-up"),
        ("table5", (*ARGS, "--size=huge"), "--size: invalid choice: 'huge'"),
        ("table5", (*ARGS, "--seeds=two"), "--seeds: invalid int value: 'two'"),
        ("table5", (*ARGS, "--output=gs://b/x"), "a local folder is required"),
        ("table6", (*ARGS, "--config=x.py"), "table6 takes its models from --size"),
        (
            "table6",
            (*ARGS, "--config.model.hidden_size=64"),
            "model.hidden_size itself",
        ),
        (
            "table7",
            ("--config.tokenizer.lowercase=True",),
            "tokenizer.lowercase itself",
        ),
        ("table5", (*ARGS, "--size=large", "--config=x.py"), "any --size but large"),
    ],
)
def test_what_it_does_not_take(data, tmp_path, capfd, table, args, message):
    given = [table, f"--data={data}", f"--output={tmp_path / 'out'}", "--size=tiny"]
    status = paper.main([*given, *args])
    error = capfd.readouterr().err
    assert status == 2 and message in error, error
    assert error.startswith("error: ") and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_corpus_too_small_for_the_size(data, tmp_path):
    text = tmp_path / "small.txt"
    text.write_text("A few words. " * 1000)
    given = ["table5", f"--data={data}", f"--corpus=text:{text}", "--tasks=sst2"]
    with pytest.raises(
        UserError, match=r"2,167 words, which 1,000,000 steps of size=b"
    ):
        options.parse([*given, "--size=base"])
    options.parse([*given, "--size=tiny", "--config.train.num_steps=90"])


def test_the_plan_says_what_a_size_takes(data):
    plan = planned(data, "--tasks=sst2", table="table1", size="mini")
    assert "1 of 1,000,000 steps of 256 sequences (warm-up: 10,000 steps)" in (
        said := progress.overview(plan)
    )
    assert "144 days on two CPU cores" in said


def test_tasks_without_data_are_left_out_and_named(data, command):
    (data / "MNLI" / "dev_matched.tsv").unlink()
    *_, out, _ = command("table5", "--seeds=2", "--plan")
    assert f"left out: mnli: {data}/MNLI has no dev_matched.tsv" in out
    given = ["table5", f"--data={data}", "--corpus=pydocs", "--tasks=mnli"]
    with pytest.raises(UserError, match=r"mnli: .*has no dev_matched\.tsv"):
        options.parse([*given, "--size=tiny"])
    with pytest.raises(UserError, match="no task of table5 has data"):
        options.parse(["table5", "--corpus=pydocs", "--size=tiny"])


def test_where_data_is_found(data, tmp_path):
    found = tasks.find("squad", [str(tmp_path), str(data)])
    assert found.fields == (
        f"task.train_file={data}/squad/train-v1.1.json",
        f"task.dev_file={data}/squad/dev-v1.1.json",
    )
    assert tasks.find("ner", [str(data)]).fields[1].endswith("NER/eng.testa")
    both = tmp_path / "two" / "ner"
    both.mkdir(parents=True)
    for name in ("a.train.conll", "b.train.conll", "a.dev.conll"):
        (both / name).touch()
    assert "a.train.conll and b.train.conll" in tasks.find("ner", [str(both.parent)])
    assert tasks.find("imdb", [str(data)]).config == ("text.py",)
    assert tasks.find("rte", ["tfds:glue"]).fields == ("task.data_dir=tfds:glue/rte",)
    (tmp_path / "glue").symlink_to(data)
    assert isinstance(tasks.find("rte", [str(tmp_path)]), tasks.Found)


@pytest.mark.slow
def test_a_whole_table_of_tiny_models(micro, tmp_path, capfd):
    """Pre-trained, fine-tuned, judged and drawn; a second start runs nothing."""
    pytest.importorskip("matplotlib", reason="needs the report extra")
    folder = tmp_path / "data" / "imdb"
    folder.mkdir(parents=True)
    rows = [{"text": f"the {w} fox", "label": w} for w in ("cats", "watch") * 16]
    for name in ("train", "test"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    args = ["imdb", "--size=tiny", f"--config={micro}", "--seeds=2"]
    args += [f"--data={tmp_path / 'data'}", f"--output={tmp_path / 'out'}"]
    args += ["--finetuning.train.num_steps=4", "--finetuning.task.max_seq_length=16"]
    status = paper.main(args)
    out, err = capfd.readouterr()
    assert status == 0, err
    assert "LTR is worse than MLM" in out
    path = tmp_path / "out" / "imdb-tiny" / "results.json"
    results = json.loads(path.read_text())
    assert [list(s["seeds"]) for s in results["scores"]] == [["0", "1"]] * 2
    assert results["pretraining"]["MLM & NSP"]["perplexity"] > 1
    assert results["majority"] == {"imdb": 50.0} and "(majority class)" in out
    kept = sorted((tmp_path / "out" / "pretraining").glob("*/checkpoints/*"))
    assert [path.name for path in kept[:5]] == ["12", "16", "20", "4", "8"]
    assert paper.main(args) == 0
    out, err = capfd.readouterr()
    assert "all 4 runs are done" in out and "run 1" not in err
