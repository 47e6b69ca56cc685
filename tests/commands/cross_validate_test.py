"""Cross-validation: parts of a table, and the predictions of all."""

import collections
import itertools
import json
import types
from pathlib import Path

import pytest

from bert_jax import api
from bert_jax.commands import cross_validate
from tests.micro import read_rows, write_rows


def test_deal_spreads_each_class_and_keeps_equal_texts_together():
    rows = [
        {"text": f"text {n % 90}", "label": "ab"[n % 90 % 3 == 0]} for n in range(99)
    ]
    parts = cross_validate.deal(rows, 3)
    sizes = collections.Counter(zip(parts, (row["label"] for row in rows), strict=True))
    for label, count in (("a", 66), ("b", 33)):
        assert all(abs(sizes[part, label] - count / 3) <= 3 for part in range(3))
    assert parts[:9] == parts[90:]
    groups = [{**row, "group": str(n % 10)} for n, row in enumerate(rows)]
    parts = cross_validate.deal(groups, 3)
    assert parts == parts[:10] * 9 + parts[:9] and {*parts} == {0, 1, 2}
    numbers = [{"text": f"text {n}", "label": n / 10} for n in range(30)]
    assert collections.Counter(cross_validate.deal(numbers, 3)) == dict.fromkeys(
        range(3), 10
    )


WRONG = {
    "": "required: table, output",
    "t.jsonl out size": "size: write FIELD=VALUE",
    "t.jsonl out --folds=9 init_from=mini": "--folds=9: must be from 2 to",
    "t.jsonl out train.seeds=2": "train.seeds and task.dev_fraction: leave them out",
    "t.jsonl out task.labl=x": "no such field",
}


@pytest.mark.parametrize(("options", "words"), WRONG.items())
def test_option_that_cannot_be(options, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [{"text": f"text {n}", "label": "ab"[n % 2]} for n in range(8)]
    write_rows(tmp_path / "t.jsonl", rows)
    assert cross_validate.main(options.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and words in line
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_main_predicts_each_row_once(tmp_path, plain, capsys, monkeypatch, one_device):
    words = ("the quick fox", "a lazy dog", "seven cats", "it jumps")
    rows = [{"text": f"{words[n % 4]} {n}", "label": n % 2} for n in range(24)]
    table, output = tmp_path / "table.jsonl", tmp_path / "folds"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = (f"init_from={plain}", "recipe=tiny", "task.max_seq_length=8")
    few = ("train.num_epochs=1", "train.batch_size=8", "evaluate.batch_size=8")
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    no_dropout = [f"model.{name}=0.0" for name in names]
    given = [*fields, *few, *no_dropout]
    assert cross_validate.main([str(table), str(output), "--folds=2", *given]) == 0
    assert "accuracy: " in capsys.readouterr().out
    lines = (output / "2_folds" / "out_of_fold.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert [row["text"] for row in found] == [row["text"] for row in rows]
    assert {row["fold"] for row in found} == {0, 1}
    assert all(row["gold"] == str(n % 2) for n, row in enumerate(found))


def test_part_that_is_scored_decides_nothing(tmp_path, plain, monkeypatch):
    """Thresholds are fitted on the next part, and rows of a group are in one part."""
    rows = [
        {"q": f"text {n}", "label": "ab"[n % 2], "topic": n // 4, "w": n % 3}
        for n in range(24)
    ]
    weights = {row["q"]: row["w"] for row in rows}
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = []

    def fit(config, folder):
        task = config.task
        files = [getattr(task, f"{name}_file") for name in ("train", "dev", "test")]
        texts = []
        for file in files:
            found = read_rows(Path(file))
            assert all(x["weight"] == weights[x["text"]] for x in found)
            texts.append([row["text"] for row in found])
        assert task.weight == "weight"
        read.append(texts)
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts[2])
        (folder / "predictions").mkdir(parents=True)
        (folder / "predictions" / "test.jsonl").write_text(lines)
        return types.SimpleNamespace(scores={"dev": {}, "test": {"f1": len(read)}})

    monkeypatch.setattr(api, "fit", fit)
    given = [
        f"init_from={plain}",
        "task.kind=multilabel",
        "task.calibration=thresholds",
    ]
    given += ["task.text=q", "task.group=topic", "task.weight=w", "--folds=3"]
    paths = [str(tmp_path / name) for name in ("t.jsonl", "out")]
    assert cross_validate.main([*paths, *given]) == 0
    every = {row["q"]: row["topic"] for row in rows}
    for texts in read:
        assert sorted(itertools.chain(*texts)) == sorted(every)
        topics = [{every[text] for text in some} for some in texts]
        assert topics[1] and topics[2] and not set.intersection(*topics[1:])
        assert not topics[0] & (topics[1] | topics[2])
    assert sorted(text for _, _, held in read for text in held) == sorted(every)
