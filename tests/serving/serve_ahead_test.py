"""What a service has not compiled yet is computed by what it has."""

import json
import threading
import time
from unittest import mock

import jax
import numpy as np
import pytest
import runs
from ml_collections import ConfigDict

from bert_jax.answering import Answering
from bert_jax.config import configuration
from bert_jax.data.rows import BatchSize
from bert_jax.serving import ahead
from bert_jax.serving.ahead import LONGEST, Ahead
from bert_jax.tasks.task import Predictor, Task
from bert_jax.training import inference, sharding

# Main, which notes the thread of each compilation; it may be long in Ahead's thread.
_NOTED = """
import sys, threading, time
import jax.monitoring
from bert_jax import main
from bert_jax.runtime import environment
from bert_jax.training import inference

path, seconds = sys.argv.pop(1).split(":")
trace = inference.trace_outputs

def note(event, *_, **__):
    if event.endswith("backend_compile_duration"):
        with open(path, "a") as file:
            print(threading.current_thread().name, file=file)

def traced(*of):
    if threading.current_thread().name == "ahead":
        with open(path, "a") as file:
            print("begins", file=file)
        time.sleep(float(seconds))
    return trace(*of)

jax.monitoring.register_event_duration_secs_listener(note)
inference.trace_outputs = traced
environment.end(main.main(sys.argv[1:]))
"""


SIZE = BatchSize(32, 128)


def batch(*lengths, of=8):
    """Rows of so many tokens: 1, 2, ..."""
    ids = np.zeros((len(lengths), of), np.int32)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = np.arange(1, length + 1)
    places = np.zeros((len(lengths), 1), np.int32)
    return {"input_ids": ids, "input_mask": np.sign(ids), "places": places}


class Asked:
    """Computes; notes the shape and the thread of what it compiles."""

    def __init__(self):
        config = configuration.load("configs/tiny.py", ["--config.mesh.data=1"])
        mesh = sharding.make_mesh(config, (), jax.devices()[:1])
        self.compiled, self.go = [], threading.Event()
        self.go.set()
        self._ask = inference.compile_predict(self._step, np.int32(2), mesh, SIZE)

    def _step(self, factor, columns):
        thread = threading.current_thread().name
        self.compiled.append((columns["input_ids"].shape, thread))
        assert self.go.wait(10)
        kept = columns["input_ids"] * columns["input_mask"]
        return {"sums": factor * kept.sum(axis=1)}

    def __call__(self, columns):
        return self._ask(columns)

    def by(self, thread):
        return [shape for shape, by in self.compiled if by == thread]

    def wait_for(self, count):
        end = time.monotonic() + 20
        while len(self.by("ahead")) < count:
            assert time.monotonic() < end, self.compiled
            time.sleep(0.01)


def sums(*lengths):
    return [length * (length + 1) for length in lengths]


def test_rows_of_any_length_are_computed_without_a_compilation():
    asked = Asked()
    ahead = Ahead(asked, SIZE)
    ahead.begin(batch(1), 100)
    asked.wait_for(4)
    assert asked.by("ahead") == [(1, 100), (1, 64), (1, 32), (1, 16)]
    ahead(batch(1, of=16))  # the last is there
    for lengths, of in (((3,), 8), ((40, 50), 50), ((70, 1, 99), 99)):
        np.testing.assert_array_equal(
            ahead(batch(*lengths, of=of))["sums"], sums(*lengths)
        )
    assert asked.by("MainThread") == []
    asked.wait_for(8)  # their own: (1, 16), (1, 8), (1, 50) and (4, 99)


def test_a_request_waits_for_what_is_being_compiled():
    asked = Asked()
    asked.go.clear()
    ahead = Ahead(asked, SIZE)
    ahead.begin(batch(1), 64)
    asked.wait_for(1)
    threading.Timer(0.3, asked.go.set).start()
    np.testing.assert_array_equal(ahead(batch(5))["sums"], sums(5))
    assert asked.by("MainThread") == [] and asked.by("ahead")[0] == (1, 64)


def test_what_fails_ahead_fails_no_request():
    asked, tried = Asked(), []

    def ask(columns):
        tried.append(threading.current_thread().name)
        if tried[-1] == "ahead":
            raise MemoryError
        return asked(columns)

    ahead = Ahead(ask, SIZE)
    ahead.begin(batch(1), 64)
    np.testing.assert_array_equal(ahead(batch(5, 6))["sums"], sums(5, 6))
    assert "MainThread" in tried and asked.by("ahead") == []


class Shapes:
    """Notes what it is asked to compute."""

    def __init__(self):
        self.found = []

    def __call__(self, columns):
        self.found.append({name: x.shape for name, x in columns.items()})
        return {"sums": np.zeros(1)}

    def wait_for(self, count):
        limit = time.monotonic() + 20
        while len(self.found) < count and time.monotonic() < limit:
            time.sleep(0.01)
        return self.found[:count]


def a_task(**fields):
    task = mock.create_autospec(Task, instance=True)
    task.config = ConfigDict({"task": {"name": "ner", **fields}})
    return task


def test_characters_are_of_as_many_words():
    asked = Shapes()
    characters = np.zeros((1, 8, 50), np.int32)
    Ahead(asked, SIZE).begin({**batch(1), "characters": characters}, 32)
    found = asked.wait_for(2)
    assert [shapes["characters"] for shapes in found] == [(1, 32, 50), (1, 16, 50)]


@pytest.mark.parametrize(("limit", "longest"), [(128, 128), (8192, LONGEST)])
def test_no_longer_row_is_computed_before_anybody_asks(limit, longest):
    predictor, asked = mock.create_autospec(Predictor, instance=True), Shapes()
    predictor.encode.return_value.batches = [batch(1)]
    model = Answering(predictor, asked, BatchSize(4, 128))
    ahead.of_task(a_task(max_seq_length=limit), model, ["words"])
    (first,) = asked.wait_for(1)
    assert first["input_ids"] == (1, longest)


def test_a_task_that_has_other_rows_is_served():
    predictor = mock.create_autospec(Predictor, instance=True)
    predictor.parse.side_effect = KeyError("premise")
    model = Answering(predictor, Shapes(), BatchSize(4, 128))
    assert ahead.of_task(a_task(max_seq_length=64), model, ["words"])


def noted(path):
    return path.read_text().splitlines() if path.exists() else []


def test_a_service_answers_new_lengths_with_what_it_has(plain, tmp_path):
    path = tmp_path / "noted"
    program = ("-c", _NOTED, f"{path}:0")
    rows = [{"text": " ".join(["the [MASK] fox"] * n)} for n in (1, 3, 6, 9)]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out, _ = runs.here(f"--workdir={plain}", "--mode=predict", f"--input={source}")
    with runs.served(plain, program=program) as (address, process):
        runs.wait_until(lambda: noted(path).count("ahead") >= 2, process)
        time.sleep(0.5)
        found = [runs.ask(f"{address}/predict", json.dumps(x).encode()) for x in rows]
        process.send_signal(15)
        runs.finish(process, 143)
    others = set(noted(path)) - {"ahead", "begins", "MainThread"}
    assert not others  # the batcher's thread has compiled nothing
    for row, line in zip(found, out.splitlines(), strict=True):
        expected = json.loads(line)["masks"]
        for guesses, right in zip(row["masks"], expected, strict=True):
            assert [x["token"] for x in guesses] == [x["token"] for x in right]
            probabilities = [x["probability"] for x in right]
            assert [x["probability"] for x in guesses] == pytest.approx(
                probabilities, rel=1e-4
            )


def test_a_signal_ends_a_service_that_compiles(plain, tmp_path):
    path = tmp_path / "noted"
    program = ("-c", _NOTED, f"{path}:60")
    with runs.served(plain, program=program) as (_, process):
        runs.wait_until(lambda: "begins" in noted(path), process)
        start = time.monotonic()
        process.send_signal(15)
        runs.finish(process, 143)
    assert time.monotonic() - start < 5
