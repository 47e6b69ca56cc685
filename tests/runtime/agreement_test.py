"""Stopping together: processes as threads around a coordination service in memory."""

import threading
import time

import pytest
from runs import LIMIT

from bert_jax.errors import Interrupted
from bert_jax.runtime.cluster import agreement


class Service:
    """What is used of JAX's client: words under keys, each written once."""

    def __init__(self):
        self._words = {}
        self._change = threading.Condition()

    def key_value_set(self, key, value):
        with self._change:
            if key in self._words:
                raise RuntimeError(f"ALREADY_EXISTS: {key}")
            self._words[key] = value
            self._change.notify_all()

    def blocking_key_value_get(self, key, milliseconds):
        with self._change:
            self._change.wait_for(lambda: key in self._words, milliseconds / 1000)
            return self._words[key]


@pytest.fixture
def make():
    """Makes the stops of a run's processes, each with a thread that listens."""
    service, threads = Service(), []

    def make(count):
        stops = [agreement.Stop(service, index, count) for index in range(count)]

        def listen(stop):
            word = service.blocking_key_value_get("stop", agreement.EVER)
            stop.agree(word)

        threads.extend(threading.Thread(target=listen, args=(s,)) for s in stops)
        for thread in threads:
            thread.start()
        return stops

    yield make
    agreement.tell(service, "stop", "15")  # where nobody has
    for thread in threads:
        thread.join()


def run_all(stops, loop):
    """Runs a loop of (index, stop, barrier) in each; gives what each returns."""
    results = {}
    together = threading.Barrier(len(stops), timeout=LIMIT)

    def run(index, stop):
        results[index] = loop(index, stop, together)

    threads = [threading.Thread(target=run, args=both) for both in enumerate(stops)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert len(results) == len(stops), "some never ended"
    return [results[index] for index in range(len(stops))]


@pytest.mark.parametrize("sender", [0, 2])
def test_all_stop_at_the_same_step_with_nobody_left_in_a_collective(make, sender):
    stops = make(3)

    def loop(index, stop, together):
        for step in range(1, 10_000):
            together.wait()  # the step's collective
            if index == sender and step == 7:
                stop.signal_number = 15
            if index == 1:
                time.sleep(0.002)  # a slow one
            try:
                stop.check()
            except Interrupted as interrupted:
                return step, interrupted.signal_number
        return None

    results = run_all(stops, loop)
    assert len(set(results)) == 1
    step, number = results[0]
    assert 7 <= step < 1000 and number == 15
