"""Rows beside BERT's own: epochs, bags of words, ensembles, TriviaQA."""

import json
import re

import pytest
from paper_runs import command, data, kinds, planned

from experiments.paper import __main__ as paper
from experiments.paper import options, runs

__all__ = ["command", "data"]  # fixtures

IMDB = ("--systems=bert,gpt", "--epochs=4,1,2")


def test_each_number_of_epochs_is_runs_of_its_own(data):
    plan = planned(data, *IMDB, "--seeds=2", table="imdb")
    assert kinds(plan) == ["pre-training", *["imdb"] * 3] * 2
    tuned = [run for run in plan if run.needs]
    assert len({run.folder for run in tuned}) == 6
    for run, count in zip(tuned, (1, 2, 4) * 2, strict=True):
        fields = [text for text in run.arguments if "train.num_epochs" in text]
        assert fields == [f"--config.train.num_epochs={count}"]
    specs = [run.arguments[0].partition(":")[2] for run in tuned]
    assert specs == ["size=tiny"] * 3 + ["size=tiny,model=gpt"] * 3


def test_base_and_large_against_gpt_by_epochs(data):
    given = ["imdb", "--size=large", "--corpus=pydocs", f"--data={data}", "--words=9"]
    found = options.parse([*given, *IMDB])
    rows = [(row.name, row.paper, row.line, row.at) for row in found.table.systems]
    assert ("BERT, base, 4 epochs", "BERT-Base", "BERT, base", 4) in rows
    assert ("BERT, base, 1 epoch", "", "BERT, base", 1) in rows and len(rows) == 9
    better, larger = found.table.claims
    assert better.text == "BERT is better than GPT on IMDb"
    assert len(better.pairs) == 6 and len(larger.pairs) == 3
    names = {row.name for row in found.table.systems}
    pairs = (*better.pairs, *larger.pairs)
    assert {x for pair in pairs for x in (pair.first, pair.second)} == names
    sizes = {run.folder.name.partition("-")[0]: run for run in runs.plan(found)}
    assert ":size=base" in sizes["gpt"].arguments[0]


def test_epochs_plot(command):
    status, _, out, err = command("imdb", *IMDB, "--seeds=3")
    assert status == 0, err
    (folder,) = command.output.glob("imdb-*")
    html = (folder / "report.html").read_text()
    assert "Along epochs of fine-tuning" in html
    assert re.search(r"REPRODUCED: BERT is better than GPT on IMDb", out)
    assert len(re.findall(r"^GPT +[\d,]+", out, re.M)) == 2  # its loss, its cost
    found = json.loads((folder / "results.json").read_text())
    assert set(found["pretraining"]) == {"BERT", "GPT"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("imdb", "--epochs=1,0"), "--epochs: 0 is below 1"),
        (("imdb", "--epochs="), "--epochs: '' names none"),
        (("table1", "--epochs=1"), "--epochs: of imdb only"),
        (
            ("imdb", "--epochs=1", "--finetuning.train.num_steps=9"),
            "the table sets train.num_steps itself",
        ),
        (("table4", "--systems=random,bert"), "random is a bag of words"),
        (
            ("table1", "--systems=bert,word2vec", "--tasks=ner"),
            "word2vec does none of ner; leave it out",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(data, tmp_path, capfd, args, message):
    given = [f"--data={data}", "--size=tiny", "--corpus=pydocs"]
    assert paper.main([*args, *given, f"--output={tmp_path / 'out'}"]) == 2
    error = capfd.readouterr().err
    assert message in error and error.count("\n") == 1, error


ALL = ("--systems=bert,word2vec,word2vec_trained,random,random_trained",)


def test_bags_of_words(data):
    given = (*ALL, "--tasks=sst2,squad", "--seeds=2")
    plan = planned(data, *given, table="table1")
    bags = plan[kinds(plan).index("word vectors") :]
    assert kinds(bags) == ["word vectors", *["sst2"] * 4]  # and no SQuAD
    assert "--words=2000000" in bags[0].arguments
    assert "--cased" not in bags[0].arguments
    frozen = "--config.optimizer.frozen=('embeddings',)"
    vectors = f"--config.task.vectors={bags[0].folder / 'vectors.npy'}"
    got = [(vectors in r.arguments, frozen in r.arguments) for r in bags[1:]]
    assert got == [(True, False), (True, True), (False, False), (False, True)]
    assert len({run.folder for run in bags}) == 5
    words = f"--config.tokenizer.vocab_file={bags[0].folder / 'vocab.txt'}"
    assert all(words in run.arguments for run in bags[1:])
    assert not any("init_from" in text for run in bags[1:] for text in run.arguments)
    bert = next(run for run in plan if run.kind == "sst2")
    rows = [{a for a in r.arguments if "batch_size" in a} for r in (bert, *bags[1:])]
    assert rows.count(rows[0]) == 5


def test_bags_of_words_alone_and_their_report(command, monkeypatch):
    given = ("--systems=word2vec,random", "--tasks=sst2,mrpc", "--seeds=2")
    monkeypatch.setenv("BREAK", "vectors")
    status, ran, out, _ = command("table1", *given)
    assert status == 2 and not ran and out.count("not run:") == 4
    monkeypatch.delenv("BREAK")
    status, ran, out, err = command("table1", *given)
    assert (status, len(ran)) == (0, 4), err
    assert "a bag of words" in out and "random vectors" in out


def test_table_1_has_imdb_if_it_is_asked_for(data):
    assert set(kinds(planned(data, "--tasks=imdb", table="table1"))) == {
        *("pre-training", "imdb"),
    }
    assert "imdb" not in kinds(planned(data, table="table1"))
    assert "imdb" not in kinds(planned(data, "--systems=gpt", table="table1"))


def test_table_4_with_its_other_systems(data):
    plan = planned(data, "--systems=bert,gpt,elmo", table="table4")
    specs = [run.arguments[0].partition(":")[2] for run in plan if run.kind == "swag"]
    assert specs == ["size=tiny", "size=tiny,model=gpt", "size=tiny,model=elmo"]


@pytest.fixture
def triviaqa(data):
    (data / "TriviaQA" / "qa").mkdir(parents=True)
    (data / "TriviaQA" / "qa" / "wikipedia-train.json").touch()
    (data / "TriviaQA" / "evidence").mkdir()


def test_table_2_has_its_four_rows(command, triviaqa):
    status, _, out, err = command("table2", "--seeds=3")
    assert status == 0, err
    (path,) = command.output.glob("table2-*/results.json")
    found = json.loads(path.read_text())
    f1 = {s["system"]: s for s in found["scores"] if s["column"] == "squad"}
    assert list(f1) == [
        *("BERT, tiny", "BERT, tiny, ensemble", "BERT, tiny, with TriviaQA"),
        "BERT, tiny, ensemble, with TriviaQA",
    ]
    assert f1["BERT, tiny, ensemble"]["seeds"] == {"0": 73.0}
    assert "An ensemble is one" in out
    assert kinds_of(found) == [
        *("pre-training", "squad", "ensemble"),
        *("TriviaQA's files", "triviaqa", "squad", "ensemble"),
    ]


def kinds_of(found):
    return [run["kind"] for run in found["runs"]]


def test_squad_after_triviaqa_waits_for_it(data, triviaqa):
    plan = planned(data, "--seeds=2", "--size=large", table="table2", size="large")
    by_kind = {run.kind: run for run in plan}
    written, first = by_kind["TriviaQA's files"], by_kind["triviaqa"]
    assert f"--config.task.train_file={written.folder / 'train.json'}" in (
        first.arguments
    )
    assert "--config.train.num_epochs=1" in first.arguments
    assert written.folder in first.needs and len(first.needs) == 2
    after = [run for run in plan if run.needs == (first.folder,)]
    assert len(after) == 2 and all(run.kind == "squad" for run in after)
    assert f"--config.init_from={first.folder}" in after[0].arguments
    *_, last = plan
    assert last.kind == "ensemble" and last.needs == tuple(r.folder for r in after)
    assert last.arguments == (f"--workdirs={after[0].folder},{after[1].folder}",)


def test_rows_that_cannot_run_are_left_out(data):
    given = ["table2", "--size=large", f"--data={data}", "--corpus=pydocs"]
    found = options.parse(given)
    assert [row.name for row in found.table.systems] == [
        *("BERT, base", "BERT, large", "BERT, large, ensemble"),
    ]
    assert found.table.systems[2].paper == "BERT-Large (ensemble)"
    assert "TriviaQA" in found.missing["triviaqa"]
    one = options.parse([*given, "--seeds=1"])
    assert [row.name for row in one.table.systems] == ["BERT, base", "BERT, large"]
    other = options.parse(["squad", *given[1:], "--tasks=squad2"])
    assert [row.name for row in other.table.systems] == ["BERT, base", "BERT, large"]


def test_what_fails_before_is_said(command, triviaqa, monkeypatch):
    monkeypatch.setenv("BREAK", "squad-")  # not the files, the fine-tuning on SQuAD
    status, _, out, _ = command("table2", "--seeds=2")
    assert status == 2 and "not run:" in out and "ensembles" in out


def test_without_gensim_nothing_begins(data, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: name != "gensim" or None
    )
    given = ["imdb", f"--data={data}", f"--output={tmp_path / 'out'}", "--size=tiny"]
    assert paper.main([*given, "--corpus=pydocs", "--systems=random"]) == 2
    error = capfd.readouterr().err
    assert error == "error: word vectors need gensim: pip install -e '.[senses]'\n"
    assert not (tmp_path / "out").exists()


def test_weights_by_epochs_need_no_pre_training(data, tmp_path):
    folders = []
    for name, kind, layers, hidden in (
        ("base", "bert", 12, 768),
        ("gpt", "openai-gpt", 12, 768),
    ):
        fields = {
            **{"num_hidden_layers": layers, "hidden_size": hidden, "vocab_size": 30},
            **{"num_attention_heads": 2, "intermediate_size": 8, "model_type": kind},
            **{"max_position_embeddings": 512, "type_vocab_size": 2},
            **{"n_layer": layers, "n_embd": hidden, "n_head": 2, "n_positions": 512},
        }
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(fields))
        (tmp_path / name / "model.safetensors").touch()
        folders.append(str(tmp_path / name))
    given = ["imdb", f"--data={data}", f"--weights={','.join(folders)}"]
    found = options.parse([*given, "--epochs=1,4"])
    names = [row.name for row in found.table.systems]
    assert names[1] == "BERT, base, 4 epochs" and names[3] == f"{folders[1]}, 4 epochs"
    (claim,) = found.table.claims
    assert claim.text == "BERT is better than GPT on IMDb" and len(claim.pairs) == 2
    plan = runs.plan(found)
    assert set(kinds(plan)) == {"imdb"} and not any(run.needs for run in plan)
    assert found.table.systems[1].paper == "BERT-Base"
