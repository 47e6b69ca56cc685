"""Table 1 with GPT next to BERT: planned, and its words."""

import json

from experiments.paper import budget
from tests.paper_runs import data, kinds, planned

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
