"""Long texts in windows: the cuts, the combined logits, refusals."""

import csv
import itertools
import re

import jax
import numpy as np
import pytest

from bert_jax.config import configuration
from bert_jax.tasks import create_task, windows
from configs.finetune import text
from tests.micro import error_line, initial_params
from tests.tasks.small_texts import shrunk

LONG = " ".join("abcdefgh"[i * i % 8] for i in range(31))


def task_of(tmp_path, rows, **fields):
    path = tmp_path / "train.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    config = shrunk(text.get_config("tiny"), tmp_path)
    config.task.update(train_file=str(path), labels=("0", "1", "2"), **fields)
    config.train.batch_size = 4
    return create_task(config)


@pytest.mark.parametrize("overlap", [0, 3, 7])
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 40])
def test_cut_windows_covers_every_token(length, overlap):
    ids = list(range(length))
    parts = windows.cut_windows(ids, 8, overlap)
    assert parts[0] == ids[:8] and all(len(part) <= 8 for part in parts)
    assert sum(parts[1:], parts[0]) == [
        *parts[0],
        *(n for a in range(1, len(parts)) for n in ids[a * (8 - overlap) :][:8]),
    ]
    assert sorted({n for part in parts for n in part}) == ids
    for one, other in itertools.pairwise(parts):
        assert other[:overlap] == one[8 - overlap :]
        assert len(other) > overlap  # has something new


@pytest.mark.parametrize("how", ["mean", pytest.param("max", marks=pytest.mark.slow)])
def test_logits_of_windows_are_those_of_their_texts_combined(tmp_path, how):
    rows = [(LONG, 0), ("a b", 1), ("", 2), (LONG[:40], 1)]
    fields = {"windows": 4, "window_overlap": 4, "window_logits": how}
    task = task_of(tmp_path, rows, **fields)
    assert task.row_shape == (4, 16)
    params = initial_params(task.init_params)
    batch = next(task.batches(0, slice(4), 0))
    assert batch["input_ids"].shape[:2] == (4, 4)
    found = jax.jit(task.logits)(params, batch)["logits"]
    there = np.int32(batch["input_ids"] != task.text.special.pad)
    logits = jax.jit(task_of(tmp_path, rows).logits)
    for row, ids, real in zip(found, batch["input_ids"], there, strict=True):
        each = real.any(axis=1)
        own = {"input_ids": ids, "input_mask": real, "segment_ids": 0 * ids}
        alone = np.asarray(logits(params, own)["logits"])
        expected = getattr(np, how)(alone[each], axis=0)
        np.testing.assert_allclose(row, expected, atol=1e-5 * np.abs(expected).max())


def test_loss_and_answers_are_of_the_combined_logits(tmp_path):
    rows = [(LONG, 0), ("a b", 1), ("c", 2), (LONG[:40], 1)]
    task = task_of(tmp_path, rows, windows=4, window_overlap=4)
    params = initial_params(task.init_params)
    batch = next(task.batches(0, slice(4), 0))
    found = jax.jit(task.logits)(params, batch)["logits"]
    logits = np.asarray(found, np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = -np.log(shares[np.arange(4), batch["label"]]).sum()
    loss = jax.jit(task.loss)(params, batch, None)["classification_loss"]
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    pair = {"text": "a", "text_b": "b"}
    line = error_line(task.parse_row, pair, error=ValueError)
    assert "only single texts have windows" in line


def test_text_longer_than_its_windows_is_cut(tmp_path):
    task = task_of(tmp_path, [(LONG, 0)], windows=2, window_overlap=0)
    (feature,) = task.encode([{"text": LONG, "label": 0}], "train")
    assert feature.columns["input_ids"].shape == (2, 16)
    assert task.notices == {"train: texts longer than their windows, cut": 1}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"window_overlap": 14}, r"window_overlap=14: must be less than the 14 tokens"),
        ({"text_b": "other"}, "only single texts in rows of their own have windows"),
        ({"texts_per_row": 2}, "leave config.task.text_b and texts_per_row unset"),
    ],
)
def test_windows_that_cannot_be_are_refused(tmp_path, fields, message):
    config = shrunk(text.get_config("tiny"), tmp_path)
    config.task.update({"windows": 2, "window_overlap": 4, **fields})
    assert re.search(message, error_line(configuration.check_config, config))
