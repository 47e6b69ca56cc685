"""What a pre-trained model knows: by kind of text, a cloze test, fine-tuned."""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import runs
import stand_ins
from runs import taken

import bert_jax
from bert_jax.convert import origins
from bert_jax.data import chunks, overlap
from bert_jax.family import FAMILIES
from bert_jax.workdir import metrics
from experiments.english import by_kind, cloze, held_out, table
from experiments.lib import execution
from experiments.paper import tasks


def main_run(arguments):
    """In the place of bert_jax.main: notes that it ran, and leaves what a run leaves.

    The score is the seed's hundredth, and half more from weights.
    """
    given = stand_ins.options(arguments)
    folder = Path(given["workdir"])
    with open(os.environ["RAN"], "a") as file:
        print(folder.parent.name, folder.name.partition("-")[0], file=file)
    if os.environ.get("BREAK") == folder.parent.name:
        sys.exit("error: broken")
    better = 0.5 if "config.init_from" in given else 0.0
    stand_ins.write_config(folder, 9, int(given["config.train.seeds"]))
    for seed in range(int(given["config.train.seeds"])):
        own = folder / f"seed_{seed}"
        own.mkdir(parents=True)
        names = ("accuracy", "matthews", "spearman")
        scores = dict.fromkeys(names, better + seed / 100)
        line = {"step": 9, "split": "dev", "time": 0, **scores}
        (own / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    print("dev at step 9\ndev  model  majority baseline\naccuracy  0.9  0.125\n")


@pytest.fixture
def tables(plain, tmp_path, monkeypatch, capsys):
    """Runs the command on data without rows; gives its status, output and errors."""
    stand_ins.put(monkeypatch, main=main_run)
    monkeypatch.setattr(execution, "MAIN", ("main",))
    monkeypatch.setenv("RAN", str(tmp_path / "ran.txt"))
    for title in ("SST-2", "RTE"):
        (tmp_path / "data" / title).mkdir(parents=True)
        for name in ("train.tsv", "dev.tsv"):
            (tmp_path / "data" / title / name).write_text("")

    def run(*arguments):
        given = (f"--init_from={plain}", f"--data={tmp_path / 'data'}")
        status = table.main([*given, f"--output={tmp_path / 'table'}", *arguments])
        return status, *capsys.readouterr()

    return run


def test_the_table(tables, tmp_path, monkeypatch):
    monkeypatch.setenv("BREAK", "random-values")
    status, out, err = tables("--tasks=sst2", "--seeds=3")
    assert status == 2 and "1 of 2 runs failed" in err.splitlines()[-1]
    monkeypatch.delenv("BREAK")
    assert taken(tmp_path / "ran.txt") == ["pre-trained sst2", "random-values sst2"]

    status, out, _ = tables("--tasks=sst2", "--seeds=3")
    assert status == 0
    assert taken(tmp_path / "ran.txt") == ["random-values sst2"]
    # Student's t with two degrees of freedom: 4.303 x 1 / sqrt(3).
    row = next(line for line in out.splitlines() if line.startswith("SST-2, accuracy"))
    assert row.split()[2:] == [
        *("12.5", "1.0", "±", "2.5", "51.0", "±", "2.5", "50.0"),
        *("83.2", "85.9", "89.7", "87.0"),
    ]
    saved = json.loads((tmp_path / "table" / "results.json").read_text())
    assert saved["scores"]["sst2"]["random values"] == {"0": 0.0, "1": 1.0, "2": 2.0}
    assert (tmp_path / "table" / "report.txt").read_text().startswith("task")


def test_changed_weights_are_finetuned_anew(tables, plain, tmp_path):
    source = tmp_path / "model"
    shutil.copytree(plain, source)
    given = (f"--init_from={source}", "--tasks=sst2", "--seeds=2")
    both = ["pre-trained sst2", "random-values sst2"]
    for expected in (both, [], both[:1]):
        assert tables(*given)[0] == 0
        assert taken(tmp_path / "ran.txt") == expected
        if not expected:
            shutil.rmtree(source / "checkpoints" / "20")  # now it is step 10


def test_checkpoints_by_step(tables, tmp_path):
    status, out, _ = tables("--steps=all", "--seeds=2", "--config.train.num_epochs=1")
    assert status == 0
    assert taken(tmp_path / "ran.txt") == [
        *("step-10 sst2", "step-20 sst2", "step-10 rte", "step-20 rte")
    ]
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("step")]
    assert "left out: mrpc" in out


def test_the_random_model_has_the_same_shape(plain, tmp_path):
    (tmp_path / "RTE").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "RTE" / name).write_text("")
    given = [f"--init_from={plain}", f"--data={tmp_path}", "--tasks=rte"]
    options, fields = table.parse([*given, "--config.optimizer.learning_rate=1e-3"])
    found, _ = tasks.find_all(options.tasks, options.data, "")
    planned = table.plan(options, fields, found)
    random = planned[table.RANDOM, "rte"].arguments
    assert "--config.model.hidden_size=32" in random
    assert "--config.model.position_initializer=normal" in random
    assert f"--config.tokenizer.vocab_file={plain}/tokenizer.json" in random
    assert not any("init_from" in each for each in random)
    start = planned[table.TRAINED, "rte"].arguments
    spread = [each for each in start if "initializer_range" in each]
    assert len(spread) == 1 and spread[0] in random  # of the new head too
    assert f"--config.init_from={plain}" in start
    assert "--config.optimizer.learning_rate=1e-3" in start


def test_the_random_model_has_the_same_case(plain, tmp_path):
    folder = tmp_path / "cased"
    runs.here("--mode=export", f"--workdir={plain}", f"--output={folder}")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    options, _ = table.parse([f"--init_from={folder}", "--data=data"])
    found = table.systems(options)[table.RANDOM]
    assert f"--config.tokenizer.vocab_file={folder}/vocab.txt" in found
    assert "--config.tokenizer.lowercase=False" in found
    assert "--config.tokenizer.strip_accents=False" in found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tasks=swag"], "--tasks: 'swag' is none of"),
        (["--steps=15"], "has the steps 10, 20"),
        (["--seeds=0"], "--seeds=0: must be from 1"),
        (["--config.seed=1"], "--config.seed=1: seed is set here"),
        (["--config.train.nothing=1"], "no such field"),
        (["--nothing"], "--nothing: no such option"),
        (["--init_from=nowhere"], "nowhere: no such folder"),
    ],
)
def test_errors_of_the_table(tables, arguments, said):
    status, _, err = tables(*arguments)
    assert status == 2 and err.startswith("error: ") and said in err


def test_weights_of_another_architecture_have_no_table(tables, monkeypatch):
    monkeypatch.setattr(origins, "family_of", lambda path: FAMILIES["gpt"])
    status, _, err = tables()
    assert status == 2 and err.endswith("a GPT, and the table is of BERTs\n")


def test_one_kind_is_the_runs_own_dev_split(plain, capsys):
    """The held-out documents found again give the run's own scores."""
    assert by_kind.main([f"--init_from={plain}"]) == 0
    (dev,) = metrics.read(plain, "dev")
    rows = {
        line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()
        if line.strip()
    }  # fmt: skip
    assert rows["corpus"][1:] == rows["all"][1:]
    assert float(rows["corpus"][4]) == pytest.approx(dev["perplexity"], abs=0.01)
    share = 100 * dev["next_sentence_accuracy"]
    assert float(rows["corpus"][7]) == pytest.approx(share, abs=0.06)


@pytest.fixture(scope="module")
def two_kinds(micro, corpus, tmp_path_factory):
    """A run of a few steps on two files; and their folder."""
    folder = tmp_path_factory.mktemp("kinds")
    documents = corpus.read_text().split("\n\n")
    half = len(documents) // 2
    for name, own in (("1-books", documents[:half]), ("2-news-2", documents[half:])):
        (folder / f"{name}.txt").write_text("\n\n".join(own) + "\n")
    runs.run(
        micro,
        folder / "run",
        f"--config.corpus.sources=sentences:{folder}/*.txt",
        f"--config.corpus.data_dir={folder / 'data'}",
        "--config.train.num_steps=2",
    )
    return folder


def test_kinds(two_kinds, tmp_path, capsys):
    out = tmp_path / "by_kind.json"
    given = [f"--init_from={two_kinds / 'run'}", f"--output={out}"]
    assert by_kind.main(given) == 0
    found = json.loads(out.read_text())
    report = json.loads(
        next(two_kinds.glob("data/pairs-*/preparation.json")).read_text()
    )
    totals = report["totals"]
    assert list(found["kinds"]) == ["books", "news", "all"]
    assert found["kinds"]["all"]["documents"] == totals["dev"]["documents"]
    assert found["kinds"]["all"]["sentences"] == totals["dev"]["sentences"]
    assert found["training_documents"] == totals["train"]["documents"]
    assert found["kinds"]["books"]["perplexity"] != found["kinds"]["news"]["perplexity"]


def test_kinds_without_a_new_sentence_are_left_out(two_kinds, monkeypatch, capsys):
    read = held_out.read
    known = []

    def with_more_known(*given):
        held = read(*given)
        own = [held_out.sentences(held, kind, "en") for kind in known]
        keys = overlap.keys([s for sentences in own for s in sentences])
        return held._replace(known=np.unique(np.concatenate([held.known, keys])))

    monkeypatch.setattr(held_out, "read", with_more_known)
    known.append("books")
    assert by_kind.main([f"--init_from={two_kinds / 'run'}"]) == 0
    said = capsys.readouterr().out
    assert "\nnews" in said and "\nbooks" not in said
    known.append("news")
    assert by_kind.main([f"--init_from={two_kinds / 'run'}"]) == 2
    assert "the training text has every held-out sentence" in capsys.readouterr().err


def test_text_that_has_changed(two_kinds, tmp_path, capsys):
    folder = tmp_path / "other"
    shutil.copytree(two_kinds, folder)
    with (folder / "2-news-2.txt").open("a") as file:
        file.write("\nthe fox\n")
    given = (f"--init_from={folder / 'run'}",
             f"--config.corpus.sources=sentences:{folder}/*.txt")  # fmt: skip
    for command in (by_kind, cloze):
        assert command.main(list(given)) == 2
        assert "not the text that this run was trained on" in capsys.readouterr().err


def test_an_exported_model_cannot_tell_its_text(two_kinds, tmp_path, capsys):
    run, model = two_kinds / "run", tmp_path / "model"
    runs.here(f"--workdir={run}", "--mode=export", f"--output={model}")
    said = []
    for source in (run, model):
        assert by_kind.main([f"--init_from={source}"]) == 0
        out, err = capsys.readouterr()
        said.append([line for line in out.splitlines() if line.startswith("books")])
        assert ("is that text is not checked" in err) == (source == model)
    assert said[0] == said[1] != []


@pytest.mark.parametrize("field", ["dev_fraction=0.5", "seed=3"])
def test_another_split_is_refused(two_kinds, capsys, field):
    given = (f"--init_from={two_kinds / 'run'}", f"--config.corpus.{field}")
    for command in (by_kind, cloze):
        assert command.main(list(given)) == 2
        assert "is not this run's" in capsys.readouterr().err


def test_a_copy_of_a_training_document_is_left_out(two_kinds, monkeypatch):
    with held_out.opened(str(two_kinds / "run"), []) as (task, _):
        given = (task, str(two_kinds / "run"))
        before = held_out.read(*given)
        own, _ = held_out.by_file(task.config)
        split_of = chunks.split_rule(own)
        found = enumerate(chunks.documents(own))
        trained = next(d for n, d in found if split_of(n) == "train")
        first = before.kinds["books"][0]
        digest = held_out._digest
        # As if the two had the same words.
        monkeypatch.setattr(
            held_out, "_digest", lambda d: digest(trained if d == first else d)
        )
        after = held_out.read(*given)
    assert (before.copies, after.copies) == (0, 1)
    assert first not in after.kinds["books"]


def test_errors(plain, tmp_path, capsys):
    for command in (by_kind, cloze):
        assert command.main([f"--init_from={tmp_path}"]) == 2
        assert capsys.readouterr().err.startswith(f"error: {tmp_path}: has no config")
    assert by_kind.main([f"--init_from={plain}", "--length=7"]) == 2
    assert "trained at 32" in capsys.readouterr().err
    assert cloze.main([f"--init_from={plain}", "--items=0"]) == 2
    assert cloze.main([f"--init_from={plain}", "--rows=1"]) == 2
    assert "--rows=1: no such option" in capsys.readouterr().err


def test_half_precision(plain, tmp_path):
    for name, more in (("whole", ()), ("half", ("--dtype=float16",))):
        given = (f"--workdir={plain}", "--mode=export", f"--output={tmp_path / name}")
        runs.here(*given, *more)
    whole, half = (tmp_path / name / "model.safetensors" for name in ("whole", "half"))
    assert 0.5 < half.stat().st_size / whole.stat().st_size < 0.6
    assert json.loads((half.parent / "config.json").read_text())["torch_dtype"] == (
        "float16"
    )
    texts = tmp_path / "texts.txt"
    texts.write_text("the quick fox\na lazy dog\n")
    one, other = (bert_jax.load(path.parent) for path in (whole, half))
    ids = np.array([one.tokenizer.encode("the quick [MASK]").ids])
    logits = [
        model.apply(ids, np.ones_like(ids), 0 * ids)["masked_lm_logits"]
        for model in (one, other)
    ]
    assert 0 < np.abs(logits[0] - logits[1]).max() < 0.01
    # It is a start like any other.
    given = (f"--config.init_from={half.parent}", f"--workdir={tmp_path / 'none'}")
    out, _ = runs.here(*given, "--mode=predict", f"--input={texts}")
    assert "the quick fox" in out
    _, said = runs.here(f"--workdir={plain}", "--dtype=float16", status=2)
    assert "--dtype=float16: is for --mode=export" in said
