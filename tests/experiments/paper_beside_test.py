"""Table 1 with GPT next to BERT: planned, run, judged, refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from paper_runs import data, kinds, planned

from bert_jax.config import configuration
from bert_jax.data import loader
from experiments.paper import beside, budget, options

__all__ = ["data"]  # a fixture

ALL = ("--systems=bert,gpt", "--tasks=sst2,mrpc,qnli,ner,squad")


def test_systems_are_trained_on_the_same(data):
    plan = planned(data, *ALL, "--seeds=3", table="table1")
    assert kinds(plan) == ["pre-training", "qnli", "sst2", "mrpc", "squad", "ner"] * 2
    first = [run for run in plan if not run.needs]
    assert [run.folder.name.partition("-")[0] for run in first] == [
        "mlm",
        "gpt",
    ]
    assert all("--words=2000000" in run.arguments for run in first)
    assert all("--config.corpus.sources=('pydocs',)" in run.arguments for run in first)
    given = [set(run.arguments[2:]) for run in plan if run.needs]
    assert given[:5] == given[5:]  # all but the config and the weights
    for fields in given:
        assert {"--config.train.seeds=3", "--config.train.early_stop=0"} <= fields
    specs = [run.arguments[0].partition(":")[2] for run in plan if run.kind == "ner"]
    assert specs == ["recipe=tiny", "recipe=tiny,model=gpt"]


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


def test_claims_are_of_the_systems_that_are_there():
    pairs = {"bert,gpt": 3, "gpt": 0}
    for names, count in pairs.items():
        table = beside.build("table1", "tiny", names.split(","))
        assert len(table.claims) == count, names
    rows = beside.build("table1", "large", ("bert", "gpt")).systems
    assert [(row.name, row.paper, row.pretraining.size) for row in rows] == [
        ("BERT, large", "BERT-Large", ""),
        ("BERT, base", "BERT-Base", "base"),
        ("GPT", "OpenAI GPT", "base"),  # released in this size
    ]


WORDS = "Alice was beginning to get very tired of sitting by her sister on the bank"


@pytest.mark.parametrize("name", ["tiny.py:recipe=plain", "gpt.py:size=tiny"])
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
    found = budget.of(spec, fields, 5000)
    assert found.words / found.steps * (found.steps - 1) < 5000 <= found.words
    config = configuration.load_config(spec, fields)
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
