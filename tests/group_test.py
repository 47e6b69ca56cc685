"""Processes as threads around a coordination service in memory."""

import socket
import threading
import time

import pytest

from bert_jax.errors import Interrupted
from bert_jax.runtime import group, lifeline


class Service:
    """What is used of JAX's client: words under keys, each written once."""

    def __init__(self):
        self._words = {}
        self._change = threading.Condition()

    def key_value_set(self, key, value, allow_overwrite=False):
        with self._change:
            if key in self._words and not allow_overwrite:
                raise RuntimeError(f"ALREADY_EXISTS: {key}")
            self._words[key] = value
            self._change.notify_all()

    def key_value_increment(self, key, number):
        with self._change:
            self._words[key] = str(int(self._words.get(key, 0)) + number)
            return int(self._words[key])

    def key_value_dir_get(self, folder):
        with self._change:
            return [(k, v) for k, v in self._words.items() if k.startswith(folder)]

    def blocking_key_value_get(self, key, milliseconds):
        with self._change:
            if self._change.wait_for(lambda: key in self._words, milliseconds / 1000):
                return self._words[key]
            raise RuntimeError("DEADLINE_EXCEEDED")


@pytest.fixture
def make(monkeypatch):
    """Makes the processes of a run; those that end themselves are noted."""
    ended, made = [], []

    def noted(self, status, text):
        ended.append((self.index, status, text))

    monkeypatch.setattr(group.Group, "_exit", noted)
    monkeypatch.setattr(group.Group, "_let_them_hear", lambda self: None)
    monkeypatch.setattr(group, "_BEAT", 0.05)

    def make(count, patience=20):
        service = Service()
        made.extend(group.Group(service, i, count, patience) for i in range(count))
        return made, ended

    yield make
    if made and made[0]._listener.is_alive():
        made[0].tell("bye")
    for one in made:
        one._listener.join(5)


def run_all(groups, loop):
    """Runs a loop of (group, barrier) in each; gives what each returns."""
    results = {}
    together = threading.Barrier(len(groups), timeout=20)

    def run(one):
        results[one.index] = loop(one, together)

    threads = [threading.Thread(target=run, args=(one,)) for one in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(results) == len(groups), "some never ended"
    return [results[one.index] for one in groups]


@pytest.mark.parametrize("sender", [0, 2])
def test_all_stop_at_the_same_step_with_nobody_left_in_a_collective(make, sender):
    groups, _ = make(3)

    def loop(one, together):
        for step in range(1, 10_000):
            together.wait()  # the step's collective
            if one.index == sender and step == 7:
                one.stop.signal_number = 15
            if one.index == 1:
                time.sleep(0.002)  # a slow one
            try:
                one.stop.check()
            except Interrupted as interrupted:
                return step, interrupted.signal_number
        return None

    results = run_all(groups, loop)
    assert len(set(results)) == 1
    step, number = results[0]
    assert 7 <= step < 1000 and number == 15


def test_a_compilation_that_all_are_in_is_given_up(make):
    groups, _ = make(2)

    def loop(one, together):
        one.stop.check()
        together.wait()
        try:
            with one.stop.lasting() as check:
                one.stop.signal_number = 15 if one.index else None
                for _ in range(400):
                    time.sleep(0.02)
                    check()
        except Interrupted:
            return "given up"
        return "ended"

    assert run_all(groups, loop) == ["given up"] * 2


def test_a_compilation_that_one_has_left_is_waited_for(make):
    groups, _ = make(2)

    def loop(one, together):
        with one.stop.lasting() as check:
            if one.index == 0:
                for _ in range(20):
                    time.sleep(0.02)
                    check()
        if one.index == 1:
            one.stop.signal_number = 15
        for step in range(1, 1000):
            try:
                one.stop.check()
            except Interrupted:
                return step
            together.wait()
        return None

    first, second = run_all(groups, loop)
    assert first == second


def test_barrier_and_leaving_together(make):
    groups, ended = make(3)
    order = []

    def loop(one, together):
        time.sleep(0.1 * one.index)
        order.append("came")
        one.barrier()
        order.append("went")

    run_all(groups, loop)
    assert order == ["came"] * 3 + ["went"] * 3
    assert ended == []


def test_the_words_of_one_that_fails_reach_the_others(make):
    groups, ended = make(3)
    groups[1].fail(2, "no data\nhere")
    deadline = time.monotonic() + 10
    while len(ended) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sorted(ended)[0] == (0, 2, "process 1: no data here")


def test_silence_is_noticed(monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    heard = group.Heard(2)
    now = 0.1
    assert heard.silent({"alive/0": "1", "alive/1": "1"}, 0.2) == []
    now = 0.35
    assert heard.silent({"alive/0": "2", "alive/1": "1"}, 0.2) == ["1"]


def test_a_lifeline_breaks_with_its_process_and_strangers_do_not_matter():
    lost = []
    held = lifeline.hold("localhost", lost.append)
    port = int(held.split()[0])
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(b"wrong 3\n")
    gone, before = threading.Event(), set(threading.enumerate())
    lifeline.grasp("localhost", held, 1, gone.set)
    assert len(set(threading.enumerate()) - before) == 1
    with socket.create_connection(("127.0.0.1", port)) as other:
        other.sendall(f"{held.split()[1]} 2\n".encode())
        time.sleep(0.2)
        assert lost == []
    deadline = time.monotonic() + 5
    while not lost and time.monotonic() < deadline:
        time.sleep(0.01)
    assert lost == ["2"] and not gone.is_set()


def test_one_that_says_no_and_what_process_0_says(make):
    groups, _ = make(3)

    def loop(one, together):
        return [
            one.all_true(one.index != 1),
            one.all_true(True),
            one.first(f"from {one.index}"),
            one.all_true(True),
        ]

    assert run_all(groups, loop) == [[False, True, "from 0", True]] * 3
