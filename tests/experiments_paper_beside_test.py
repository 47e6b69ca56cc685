"""Table 1 with GPT and ELMo next to BERT: planned, run, judged, refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from paper_runs import command, data, kinds, planned

from bert_jax.config import configuration
from bert_jax.data import loader
from experiments.paper import beside, budget, options, results
from families.elmo import streams

__all__ = ["command", "data"]  # fixtures

ALL = ("--systems=bert,gpt,elmo", "--tasks=sst2,mrpc,qnli,ner,squad")


def test_systems_are_trained_on_the_same(data):
    plan = planned(data, *ALL, "--seeds=3", table="table1")
    assert kinds(plan) == ["pre-training", "qnli", "sst2", "mrpc", "squad", "ner"] * 3
    first = [run for run in plan if not run.needs]
    assert [run.folder.name.partition("-")[0] for run in first] == [
        "mlm",
        "gpt",
        "elmo",
    ]
    assert all("--words=2000000" in run.arguments for run in first)
    assert all("--config.corpus.sources=('pydocs',)" in run.arguments for run in first)
    given = [set(run.arguments[2:]) for run in plan if run.needs]
    assert given[:5] == given[5:10] == given[10:]  # all but the config and the weights
    for fields in given:
        assert {"--config.train.seeds=3", "--config.train.early_stop=0"} <= fields
    specs = [run.arguments[0].partition(":")[2] for run in plan if run.kind == "ner"]
    assert specs == ["recipe=tiny", "recipe=tiny,model=gpt", "recipe=tiny,model=elmo"]


def test_budget_becomes_the_run(micro, tmp_path, monkeypatch):
    """Its steps read the words, which are kept, and counted once."""
    started = []
    monkeypatch.setattr(budget.os, "execv", lambda *given: started.append(given[1]))
    fields = (f"--config.corpus.data_dir={tmp_path / 'prepared'}", "--config.seed=3")
    given = [f"--config={micro}", "--words=3000", f"--output={tmp_path / 'run'}"]
    for _ in range(2):
        assert budget.main([*given, *fields]) is None
        monkeypatch.setattr(budget, "of", None)
    kept = json.loads(budget.path(tmp_path / "run").read_text())
    steps = kept["steps"]
    assert kept["words"] / steps * (steps - 1) < 3000 <= kept["words"]
    assert started[0] == started[1] and started[0][1:] == [
        *("-m", "bert_jax.main", f"--config={micro}", *fields),
        *(f"--config.train.num_steps={steps}", f"--workdir={tmp_path / 'run'}"),
    ]


def test_swag_is_of_all_three(data):
    given = ("--systems=bert,gpt,elmo", "--seeds=3", "--corpus=pydocs")
    plan = planned(data, *given, table="table4")
    assert kinds(plan) == ["pre-training", "swag"] * 3
    configs = [run.arguments[0] for run in plan if run.needs]
    assert [spec.rpartition("model=")[2] for spec in configs[1:]] == ["gpt", "elmo"]
    rows = beside.build("table4", "tiny", ("bert", "elmo"))
    assert [row.paper for row in rows.systems] == ["BERT-Base", "ESIM+ELMo"]
    for run in (run for run in plan if run.needs):
        configuration.load_config(run.arguments[0].removeprefix("--config="), [])


def test_elmo_word_at_released_size():
    for size in ("tiny", "base"):
        *_, elmo = beside.build("table1", size, ("gpt", "elmo")).systems
        spec = options.pretraining_config("elmo", size)
        fields = [f"--config.{field}" for field in elmo.pretraining.fields]
        assert configuration.load_config(spec, fields).task.words == "punctuation"


def test_budget_comes_before_the_run_and_stays(command, monkeypatch):
    two = ("--systems=gpt,bert", "--tasks=sst2,mrpc", "--seeds=3")
    monkeypatch.setenv("BREAK", "gpt-")
    status, ran, *_ = command("table1", *two)
    assert status == 2
    assert [line.partition("-")[0] for line in ran if "tuning" not in line] == [
        *("pretraining/mlm", "pretraining/gpt"),
    ]
    monkeypatch.delenv("BREAK")
    status, ran, out, _ = command("table1", *two)
    assert status == 0 and not any("pretraining/mlm" in line for line in ran)
    assert (
        "2,000,005" in out and "REPRODUCED: On average over GLUE BERT is above" in out
    )
    folder = command.output / "table1-bert-gpt-tiny"
    found = json.loads((folder / "results.json").read_text())
    scores = {(s["system"], s["column"]): s for s in found["scores"]}
    assert scores["GPT", "average"]["mean"] == pytest.approx(61.0)
    assert scores["BERT", "average"]["paper"] == pytest.approx((93.5 + 88.9) / 2)
    assert found["pretraining"]["GPT"]["words"] == 2_000_005
    text = (folder / "report.md").read_text()
    assert "What pre-training took" in text


def test_claims_are_of_the_systems_that_are_there():
    pairs = {"bert,gpt": 3, "bert,elmo": 3, "gpt,elmo": 1, "gpt": 0, "bert,gpt,elmo": 5}
    for names, count in pairs.items():
        table = beside.build("table1", "tiny", names.split(","))
        assert len(table.claims) == count, names
        keys = {column.key for column in table.columns} | {"average"}
        systems = {system.name for system in table.systems}
        for claim in table.claims:
            for pair in claim.pairs:
                assert {pair.first, pair.second} <= systems and pair.column in keys
    rows = table.published.rows
    assert (
        rows["BERT-Base"]["squad"] == 88.5 and rows["BiLSTM+ELMo+Attn"]["ner"] == 95.7
    )
    assert "BERT is above GPT" in table.claims[2].text
    rows = beside.build("table1", "large", ("bert", "gpt")).systems
    assert [(row.name, row.paper, row.pretraining.size) for row in rows] == [
        ("BERT, large", "BERT-Large", ""),
        ("BERT, base", "BERT-Base", "base"),
        ("GPT", "OpenAI GPT", "base"),  # released in this size
    ]


def test_mean_is_of_the_seeds_that_have_all():
    one, other = results.Cell({0: 1.0, 1: 3.0}, 5.0), results.Cell({1: 5.0}, None)
    assert results.mean_of([one, other]) == results.Cell({1: 4.0}, None)


WORDS = "Alice was beginning to get very tired of sitting by her sister on the bank"


@pytest.mark.parametrize(
    "name", ["tiny.py:recipe=plain", "gpt.py:size=tiny", "elmo.py:size=tiny"]
)
def test_budget_of_an_epoch(name, tmp_path):
    """Counted here in the batches themselves."""
    rng, words = np.random.default_rng(0), WORDS.split()
    lines = [" ".join(rng.choice(words, 9)).capitalize() + "." for _ in range(160)]
    text = "".join(line + "\n" * (1 + (i % 20 == 19)) for i, line in enumerate(lines))
    (tmp_path / "text.txt").write_text(text)
    spec = str(Path(options.__file__).parents[2] / "configs" / name)
    fields = [
        f"--config.corpus.sources=('sentences:{tmp_path}/text.txt',)",
        f"--config.corpus.data_dir={tmp_path / 'prepared'}",
        *("--config.tokenizer.vocab_size=70", "--config.corpus.dev_fraction=0.2"),
        *("--config.train.batch_size=1", "--config.corpus.max_seq_length=32"),
    ]
    if "elmo" in name:
        fields[2] = "--config.tokenizer.vocab_size=16"
    found = budget.of(spec, fields, 5000)
    assert found.words / found.steps * (found.steps - 1) < 5000 <= found.words
    config = configuration.load_config(spec, fields)
    if "elmo" in name:
        ids = streams.prepare(config).stream("train").ids
        share = float(np.mean(ids != 0))
        assert found.words / found.steps == pytest.approx(20 * share)
        return
    config.train.num_steps = found.steps
    (place,) = (tmp_path / "prepared").glob("pairs-*")
    totals = json.loads((place / "preparation.json").read_text())["totals"]["train"]
    steps = range(totals["pairs"])
    counts = [_words(loader.batch_at(config, step), place) for step in steps]
    assert found.words / found.steps == pytest.approx(np.mean(counts))


def _words(batch, place):
    """Tokens that begin a word, or end it, masked ones by their original token."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    ids = batch["input_ids"].copy()
    for row, (places, its) in enumerate(
        zip(batch["masked_lm_positions"], batch["masked_lm_ids"], strict=True)
        if "masked_lm_ids" in batch
        else ()
    ):
        real = batch["masked_lm_weights"][row] > 0
        ids[row, places[real]] = its[real]
    pieces = [tokenizer.id_to_token(i) for i in ids[batch["input_mask"] > 0]]
    if "masked_lm_ids" not in batch:
        return sum(piece.endswith("</w>") for piece in pieces)
    marks = ("##", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
    return sum(not piece.startswith(marks) for piece in pieces)
