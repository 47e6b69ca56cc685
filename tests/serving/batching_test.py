"""Rows of many requests: in turn, with others of like length, in compiled programs."""

import asyncio
import threading

import numpy as np
import pytest
from starlette.exceptions import HTTPException

from bert_jax.data.rows import BatchSize, Feature
from bert_jax.serving.batching import Batcher
from bert_jax.tasks.task import Predictor
from tests.micro import answerer
from tests.served import batcher


class Held:
    """A batcher that computes when it is let. `groups` has the texts of each batch."""

    def __init__(self, rows=4, width=0):
        self.groups, self.go, self.began = [], threading.Event(), threading.Event()
        self.batcher = batcher(self.compute, rows, width)

    def compute(self, rows):
        self.began.set()
        assert self.go.wait(60)
        if any(row["text"] == "fails" for row in rows):
            raise RuntimeError("broken")
        self.groups.append([row["text"] for row in rows])
        return [{"label": row["text"]} for row in rows]

    async def ask(self, *texts):
        rows = [{"text": text} for text in texts]
        return [row["label"] for row in await self.batcher.answers(rows)]

    def results(self, *requests, leave=()):
        """The answers to requests that came while a first row was computed.

        Args:
          leave: Numbers of the requests whose clients leave before the batch ends.
        """

        async def all_of_them():
            first = asyncio.ensure_future(self.ask("first"))
            await asyncio.to_thread(self.began.wait, 60)
            waiting = [asyncio.ensure_future(self.ask(*texts)) for texts in requests]
            await asyncio.sleep(0)  # they are in the queue
            for number in leave:
                waiting[number].cancel()
            await asyncio.sleep(0)
            self.go.set()
            return await asyncio.gather(first, *waiting, return_exceptions=True)

        found = asyncio.run(all_of_them())
        assert found.pop(0) == ["first"] and self.groups.pop(0) == ["first"]
        return found


def test_rows_that_wait_are_computed_together():
    held = Held()
    texts = [[str(number)] for number in range(7)]
    assert held.results(*texts) == texts
    assert held.groups == [["0", "1", "2", "3"], ["4", "5", "6"]]


def test_short_request_waits_for_one_batch_of_a_long_one():
    held = Held(rows=2)
    many = [str(number) for number in range(10, 20)]
    assert held.results(many, ["7"]) == [many, ["7"]]
    first, second, *_ = held.groups
    assert first == ["10", "11"] and second[0] == "7"  # perhaps with "12"


@pytest.mark.parametrize(("width", "together"), [(64, 2), (0, 3)])
def test_rows_of_like_lengths_share_a_batch_in_their_order(width, together):
    """On a CPU (with a width) they are more alike."""
    held = Held(width=width)
    texts = ["a" * 1000, "b", "c" * 1100, "d" * 20, "e" * 2000]
    assert held.results(*[[text] for text in texts]) == [[text] for text in texts]
    assert held.groups[0] == [texts[0], *texts[2:5:2]][:together]
    assert held.groups[1] == ["b", texts[3]]


def test_rows_of_a_client_that_has_left_are_not_computed():
    held = Held()
    many = [str(number) for number in range(1000)]
    gone, stays = held.results(many, ["5", "6"], leave=[0])
    assert isinstance(gone, asyncio.CancelledError) and stays == ["5", "6"]
    assert held.groups == [["5", "6"]]


def test_others_do_not_wait_for_the_parser_of_a_long_text(monkeypatch):
    held = Held()
    began, others = threading.Event(), threading.Event()

    def parse(row):
        began.set()
        assert others.wait(20)
        return row

    monkeypatch.setattr(held.batcher._answerer, "parse_row", parse)
    held.go.set()

    async def ask():
        asked = asyncio.ensure_future(held.ask("a" * 100_000))
        await asyncio.to_thread(began.wait, 60)
        others.set()
        return await asked

    assert asyncio.run(ask()) == ["a" * 100_000]


def test_row_that_is_wrong_fails_its_request_alone():
    held = Held()
    wrong, right = held.results(["1", 2, "3"], ["4"])
    assert isinstance(wrong, HTTPException) and right == ["4"]
    assert wrong.status_code == 400 and wrong.detail.startswith("row 1: ")


def test_failing_row_fails_its_request_alone():
    held = Held()
    failed, right = held.results(["fails"], ["1", "2"])
    assert str(failed) == "broken" and right == ["1", "2"]


class Padded(Predictor):
    """Rows of a given number of words, as arrays, computed by compiled programs."""

    max_seq_length = 100

    def __init__(self, width, fails=()):
        self.compiled, self.fails = [], fails
        self.answerer = answerer(self, np.int32(1), rows=16)
        self.answerer.size = BatchSize(16, width)

    def parse_row(self, row):
        return len(row["text"].split())

    def encode(self, examples, split):
        return [Feature(n, {"input_ids": [1] * x}) for n, x in enumerate(examples)]

    def outputs(self, factor, columns):
        shape = columns["input_ids"].shape
        if shape in self.fails:
            raise MemoryError("too large")
        self.compiled.append(shape)
        return {"sum": factor * columns["input_ids"].sum(axis=1)}

    def decode(self, examples, features, outputs):
        return [{"answer": int(output["sum"])} for output in outputs]

    def batcher(self):
        return Batcher(self.answerer, {"text": "a"})


def answered(served, *lengths):
    rows = [{"text": "a " * length} for length in lengths]
    found = asyncio.run(served.answers(rows))
    assert [row["answer"] for row in found] == list(lengths)


def test_programs_are_compiled_before_requests():
    model = Padded(width=64)
    served = model.batcher()
    lengths = (16, 32, 64, 100)
    assert model.compiled == [(rows, of) for of in lengths for rows in (1, 16)]
    answered(served, 3)
    answered(served, 70, 40)
    assert len(model.compiled) == 8


def test_rows_that_do_not_compile_are_served(caplog):
    """Of a length too large for the memory."""
    caplog.set_level("INFO")
    model = Padded(width=64, fails={(1, 64)})
    served = model.batcher()
    assert len(model.compiled) == 4
    answered(served, 3)
    assert "not compiled before a request" in caplog.text
