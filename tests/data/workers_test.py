"""Worker processes: order, errors, and their end."""

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bert_jax.data import workers
from bert_jax.errors import Interrupted, UserError
from tests.micro import error_line

LIMIT = 600  # seconds after which something hangs, however busy the machine is


def scaled(factor, item):
    return factor * item, os.getpid()


def fails_at_two(_, item):
    if item == 2:
        raise UserError("item 2 is bad")
    return item


def dies_at_two(_, item):
    if item == 2:
        os._exit(1)
    return item


def sleeps(_, item):
    time.sleep(item)
    return item


def reports(_, item):
    open(str(os.getpid()), "w").close()
    time.sleep(2 * LIMIT)


@pytest.mark.slow
def test_ordered_map_is_in_order_and_elsewhere():
    results = list(workers.ordered_map(scaled, 10, range(6)))
    assert [value for value, _ in results] == [0, 10, 20, 30, 40, 50]
    assert os.getpid() not in {pid for _, pid in results}


def test_items_are_taken_as_they_are_needed():
    taken = []

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    results = workers.ordered_map(scaled, 1, items())
    next(results)
    assert len(taken) <= max(3, workers.available_cores() + 1)
    results.close()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("function", "said"),
    [(fails_at_two, "item 2 is bad"), (dies_at_two, "a worker process died")],
)
def test_worker_that_fails_or_dies_is_one_line(function, said):
    results = workers.ordered_map(function, None, range(20))
    assert said in error_line(list, results)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    "exception",
    [KeyboardInterrupt(), pytest.param(Interrupted(15), marks=pytest.mark.slow)],
)
def test_interruption_ends_the_workers(exception):
    def items():
        yield from (0, 0, 1)  # on one core the map waits for all but the last
        raise exception  # as a signal's handler would, in the main thread

    with pytest.raises(type(exception)):
        list(workers.ordered_map(sleeps, None, items()))
    assert not multiprocessing.active_children()


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from bert_jax.data import workers
from tests.data import workers_test
list(workers.ordered_map(workers_test.reports, None, range(4)))
"""


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    root = Path(workers.__file__).parents[2]
    command = [sys.executable, tmp_path / "script.py", root]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as parent:
        deadline = time.monotonic() + LIMIT
        while not (pids := [int(p.name) for p in tmp_path.glob("[0-9]*")]):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        parent.kill()
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)
