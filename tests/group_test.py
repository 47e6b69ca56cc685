"""Processes as threads around a coordination service in memory."""

import collections
import contextlib
import threading
import time

import pytest

from bert_jax.errors import Interrupted
from bert_jax.runtime import group


class Service:
    """What is used of JAX's client: words under keys, written once, and barriers."""

    def __init__(self, count):
        self._count = count
        self._words, self._waiting = {}, collections.Counter()
        self._change = threading.Condition()
        self._shut_down = False

    def key_value_set(self, key, value):
        with self._change:
            if key in self._words:
                raise RuntimeError(f"ALREADY_EXISTS: {key}")
            self._words[key] = value
            self._change.notify_all()

    def key_value_dir_get(self, folder):
        with self._change:
            return [(k, v) for k, v in self._words.items() if k.startswith(folder)]

    def blocking_key_value_get(self, key, milliseconds):
        self._wait_for(lambda: key in self._words, milliseconds)
        return self._words[key]

    def wait_at_barrier(self, name, milliseconds):
        with self._change:
            self._waiting[name] += 1
            self._change.notify_all()
        self._wait_for(lambda: self._waiting[name] == self._count, milliseconds)

    def shut_down(self):
        with self._change:
            self._shut_down = True
            self._change.notify_all()

    def _wait_for(self, condition, milliseconds):
        with self._change:
            self._change.wait_for(
                lambda: self._shut_down or condition(), milliseconds / 1000
            )
            if not condition():
                raise RuntimeError("CANCELLED")


@pytest.fixture
def make(monkeypatch):
    """Makes the processes of a run; those that end themselves are noted."""
    ended, made = [], []

    def noted(self, words):
        ended.append((self.index, words))

    monkeypatch.setattr(group.Group, "_exit", noted)

    def make(count):
        service = Service(count)
        monkeypatch.setattr(group, "_shut_down", service.shut_down)
        made.extend(group.Group(service, index, count) for index in range(count))
        return made, ended

    yield make
    for one in made:
        one.close()


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
    groups[0].stop.signal_number = 15
    with contextlib.suppress(Interrupted):  # a signal before it
        groups[0].stop.check()
    groups[1].fail(2, "no data\nhere")
    groups[2].fail(1, "another has gone")  # not the first
    deadline = time.monotonic() + 10
    while len(ended) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sorted(ended) == [(i, "2 process 1: no data here") for i in range(3)]


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
