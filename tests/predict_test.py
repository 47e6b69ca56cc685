"""Prediction sorts rows by length: order and memory are as without."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import pretrained
from bert_jax.data.rows import Feature
from bert_jax.data.tables import Record
from bert_jax.errors import UserError
from bert_jax.tasks import row_files
from bert_jax.tasks.task import Predictor
from tests.close import assert_close
from tests.micro import answerer, error_line, write_rows
from tests.runs import run

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "it"]


class Counting(Predictor):
    """Answers a row's number, and notes how many rows it is given."""

    max_seq_length = 16

    def __init__(self, added=0.0):
        self.asked, self.parsed, self.added = [], 0, added

    def parse_row(self, row):
        if "number" not in row:
            raise ValueError("the field number is missing")
        self.parsed += 1
        return row["number"]

    def encode(self, examples, split):
        self.asked.append(len(examples))
        return [
            Feature(index, {"input_ids": [number] * (1 + number % 7)})
            for index, number in enumerate(examples)
        ]

    def outputs(self, params, batch):
        return {"is": batch["input_ids"][:, 0] + jnp.float32(self.added)}

    def decode(self, examples, features, outputs):
        assert len(examples) == len(features)
        return [{"is": int(output["is"])} for output in outputs]


def lines(count):
    for number in range(count):
        yield Record(f"in:{number}", {"number": number})


def test_predict_answers_every_row_once_in_order():
    size = row_files.WINDOW * 2
    asked = Counting()
    answers = []
    for some in answerer(asked, rows=2).stream(lines(100)):
        # At most two windows are read before their answers.
        assert asked.parsed - len(answers) <= 2 * size
        answers += some
    assert answers == [({"number": n}, {"is": n}) for n in range(100)]
    assert asked.asked == [32, 32, 32, 4]


def test_windows_before_a_wrong_row_are_answered():
    rows = [*lines(80), Record("in:81", {}), *lines(3)]
    answers = []
    with pytest.raises(UserError, match="in:81: the field number is missing"):
        for some in answerer(Counting(), rows=2).stream(rows):
            answers += some
    assert len(answers) == 32  # the next window is computed


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_model_that_computes_no_numbers_has_no_answers(value):
    """Each of its weights may be finite."""
    asked = answerer(Counting(value), rows=2)
    said = "computes NaN or infinity"
    assert said in error_line(list, asked.stream(lines(3)))
    assert said in error_line(asked.answer, [{"number": 1}])
    asked = answerer(Counting(-np.inf), rows=2)
    asked.predictor.decode = lambda *_: [{"minus infinity": "a number"}]
    assert asked.answer([{"number": 1}]) == [{"minus infinity": "a number"}]


@pytest.mark.usefixtures("one_device")
@pytest.mark.slow
def test_answers_do_not_depend_on_the_window(micro, plain, tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for number in range(75):
        words = list(rng.choice(WORDS, rng.integers(1, 20)))
        for place in rng.integers(0, len(words), rng.integers(0, 3)):
            words[place] = "[MASK]"
        rows.append({"text": " ".join(words), "number": number})
        if number % 3 == 0:
            rows[-1]["text_b"] = "seven cats [MASK]"
    source = write_rows(tmp_path / "in.jsonl", rows)
    found = []
    for size in (1, 64):
        given = (f"--input={source}", f"--config.predict.batch_size={size}")
        out, _ = run(micro, plain, "--mode=predict", *given)
        found.append([json.loads(line) for line in out.splitlines()])
    for row, one, other in zip(rows, *found, strict=True):
        assert row.items() <= one.items() and one.keys() == other.keys()
        assert len(one["masks"]) == (row["text"] + row.get("text_b", "")).count("[")
        for some, others in zip(one["masks"], other["masks"], strict=True):
            first, last = ([x["probability"] for x in each] for each in (some, others))
            assert first == pytest.approx(last, rel=1e-4)


@pytest.mark.slow
def test_texts_of_all_lengths_are_encoded_as_each_alone(plain, monkeypatch):
    monkeypatch.setattr(pretrained, "_BATCH", 8)
    bert = pretrained.load(plain)
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(WORDS, n)) for n in rng.integers(1, 18, 9)]
    together = bert.encode(texts)
    for index, text in enumerate(texts):
        alone = bert.encode([text])
        length = alone["hidden_states"].shape[1]
        one = together["hidden_states"][index]
        assert_close(one[:length], alone["hidden_states"][0])
        assert not np.any(one[length:])
        assert_close(together["pooled"][index], alone["pooled"][0])
