"""The paper's tables by one command: run, stopped, resumed, reported."""

import json

import pytest

from experiments.paper import __main__ as paper
from tests import stand_ins
from tests.paper_runs import command, data, main_run
from tests.runs import here

__all__ = ["command", "data"]  # fixtures


def test_runs_once_and_says_what_it_found(command):
    args = ("table5", "--tasks=sst2,mrpc", "--seeds=3")
    status, ran, out, err = command(*args)
    assert status == 0 and len(ran) == len(set(ran)) == 4 + 5 * 2
    assert "LTR is worse than MLM on all tasks (section 5.1)" in out
    assert "REPRODUCED: LTR is worse" in out and "not asked for: mnli, qnli" in out
    assert "UNDECIDED: No NSP hurts" in out
    assert "run 14 of 14: done in" in err
    folder = command.output / "table5-tiny"
    results = json.loads((folder / "results.json").read_text())
    found = {(s["system"], s["column"]): s for s in results["scores"]}
    assert found["LTR & No NSP", "sst2"]["seeds"] == pytest.approx(
        {"0": 50.0, "1": 51.0, "2": 52.0}
    )
    assert found["MLM & NSP", "mrpc"]["paper"] == 86.7
    text = (folder / "report.md").read_text()
    assert "\n| LTR & No NSP | " in text and "51.0 ± 2.5 [92.1] |" in text
    # Again: nothing runs, the same report.
    status, ran, again, err = command(*args)
    assert (status, ran, err) == (0, [], "")
    assert again.partition("Circumstances")[0] == out.partition("Circumstances")[0]


def test_whole_table_of_tiny_models(micro, tmp_path, monkeypatch, capfd):
    """Pre-trained, fine-tuned, judged and drawn. A second start runs nothing.

    The program runs in this process.
    """

    def run(arguments):
        if "/ltr-" in arguments[-1]:  # its work directory: one real system is enough
            main_run(arguments)
        else:
            print(*here(*arguments), sep="")

    stand_ins.put(monkeypatch, main=run)
    folder = tmp_path / "data" / "imdb"
    folder.mkdir(parents=True)
    rows = [{"text": f"the {w} fox", "label": w} for w in ("cats", "watch") * 16]
    for name in ("train", "test"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    args = ["imdb", "--size=tiny", f"--config={micro}", "--seeds=2"]
    args += [f"--data={tmp_path / 'data'}", f"--output={tmp_path / 'out'}"]
    args += ["--finetuning.train.num_steps=4", "--finetuning.task.max_seq_length=16"]
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        args.append(f"--finetuning.model.{name}=0.0")
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
    assert not err
