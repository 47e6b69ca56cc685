"""The paper's tables from weights that exist: rows, recipes, claims."""

import json

import pytest
from paper_runs import command, data

from experiments.paper import options, runs

__all__ = ["command", "data"]  # fixtures


@pytest.fixture
def weights(tmp_path):
    """Returns a folder of a shape, named as it is. Nothing reads its numbers."""

    def make(name, layers, hidden):
        folder = tmp_path / name
        folder.mkdir()
        fields = {
            **{"model_type": "bert", "architectures": ["BertForPreTraining"]},
            **{"num_hidden_layers": layers, "hidden_size": hidden},
            **{"num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 30},
            **{"max_position_embeddings": 512, "type_vocab_size": 2},
        }
        (folder / "config.json").write_text(json.dumps(fields))
        (folder / "model.safetensors").touch()
        return str(folder)

    return make


@pytest.fixture
def planned(data):
    def plan(table, *args):
        found = options.parse([table, f"--data={data}", "--output=out", *args])
        return found, runs.plan(found)

    return plan


def test_existing_weights_need_no_pretraining(planned, weights):
    base, mine = weights("bert-base", 12, 768), weights("mine", 3, 16)
    found, plan = planned("table1", "--tasks=sst2,mrpc", f"--weights={base},{mine}")
    assert {run.kind for run in plan} == {"sst2", "mrpc"}
    assert all(not run.needs for run in plan)
    rows = {system.name: system.paper for system in found.table.systems}
    assert rows == {"BERT, base": "BERT-Base", mine: ""} and not found.table.claims
    for folder in (base, mine):  # one process a seed, as at Base
        own = [r for r in plan if f"--config.init_from={folder}" in r.arguments]
        assert len(own) == 2 * 5 and len({run.folder for run in own}) == 10
        assert all(":recipe=base" in run.arguments[0] for run in own)
    small = weights("small", 2, 128)
    found, plan = planned("table4", f"--weights={small}")
    assert found.size == "tiny" and ":recipe=tiny" in plan[0].arguments[0]
    assert len(plan) == 1 and "--config.train.seeds=5" in plan[0].arguments


def test_claim_is_judged_of_base_and_large(command, weights):
    base, large = weights("ltr-base", 12, 768), weights("large", 24, 1024)
    args = ("--tasks=sst2,mrpc", "--seeds=3", f"--weights={large},{base}")
    status, ran, out, err = command("table1", *args)
    assert (status, len(ran)) == (0, 2 * 2 * 3), err
    assert "REPRODUCED: Large is better than Base" in out
    (report,) = command.output.glob("table1-large-*")  # others' have other names
    results = json.loads((report / "results.json").read_text("utf-8"))
    assert results["about"]["weights"] == f"{large}, {base}"
    assert "corpus" not in results["about"]
    papers = {s["system"]: s["paper"] for s in results["scores"]
              if s["column"] == "sst2"}  # fmt: skip
    assert papers == {"BERT, large": 94.9, "BERT, base": 93.5}
    assert command("table1", *args)[:2] == (0, [])  # again: nothing is left
