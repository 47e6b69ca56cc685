"""Rows of many requests: in turn, together, and not those of who has gone."""

import threading

import pytest

from bert_jax.errors import UserError
from bert_jax.serving import batching
from bert_jax.serving.batching import ANY, CLOSE, Batcher


def of(rows):
    return lambda: rows


class Held:
    """Computes when it is let; `groups` has what was computed together."""

    def __init__(self, most=4, measure=lambda _: 10, alike=ANY):
        self.groups, self.go, self.began = [], threading.Event(), threading.Event()
        self.batcher = Batcher(measure, int, self.compute, most, alike)
        self.first = self.batcher.submit(of(["0"]))
        assert self.began.wait(10)

    def compute(self, rows):
        self.began.set()
        assert self.go.wait(10)
        self.groups.append(list(rows))
        return [2 * row for row in rows]

    def results(self, *futures):
        self.go.set()
        found = [future.result(10) for future in futures]
        self.batcher.close(10.0)
        return found


def test_rows_that_wait_are_computed_together():
    held = Held()
    futures = [held.batcher.submit(of([str(row)])) for row in range(1, 8)]
    assert held.results(*futures) == [[2 * row] for row in range(1, 8)]
    assert held.groups == [[0], [1, 2, 3, 4], [5, 6, 7]]


def test_a_request_of_few_rows_does_not_wait_for_one_of_many():
    held = Held(most=2)
    many = held.batcher.submit(of([str(row) for row in range(10, 20)]))
    more = held.batcher.submit(of([str(row) for row in range(30, 33)]))
    few = held.batcher.submit(of(["7"]))
    assert held.results(few, more, many)[0] == [14]
    assert held.groups[:4] == [[0], [10, 30], [7, 11], [31, 12]]
    assert many.result() == [2 * row for row in range(10, 20)]


def test_who_has_faults_waits_for_those_who_have_none():
    held = Held()
    faulty = [held.batcher.submit(of([str(n)]), faulty=True) for n in (1, 2, 3)]
    right = [held.batcher.submit(of([str(n)])) for n in (4, 5)]
    held.results(*faulty, *right)
    assert held.groups == [[0], [4, 5], [1], [2], [3]]  # one by one: others may come


def test_where_all_have_faults_rows_are_computed_together(monkeypatch):
    monkeypatch.setattr(batching, "_LATELY", 0.0)
    held = Held()
    held.results(*[held.batcher.submit(of(["1"]), faulty=True) for _ in range(6)])
    assert [len(group) for group in held.groups] == [1, 4, 2]


@pytest.mark.parametrize("faulty", [False, True])
def test_a_turn_of_the_oldest_is_one_row(monkeypatch, faulty):
    """However many rows of a client wait since long; with faults more rarely."""
    monkeypatch.setattr(batching, "_RARELY", 32)
    held = Held(most=1)
    long = held.batcher.submit(of(["7"] * 60), faulty=faulty)
    right = [held.batcher.submit(of(["1"])) for _ in range(60)]
    held.results(long, *right)
    places = [n for n, group in enumerate(held.groups[:61]) if group == [7]]
    # The first is the second batch, in which only the number decides.
    assert places == ([31] if faulty else [1, 15, 31, 47])


@pytest.mark.parametrize("characters", [0, 30_000])
def test_who_has_faults_waits_for_a_calm(monkeypatch, characters):
    """One who has none came just before. A turn of the oldest comes all the same."""
    monkeypatch.setattr(batching, "_CALM", 1000.0)
    held = Held(most=1)
    faulty = held.batcher.submit(of(["7", "8"]), characters, faulty=True)
    held.go.set()
    assert held.batcher.submit(of(["1"])).result(10) == [2]
    assert not faulty.done() and [7] not in held.groups
    monkeypatch.setattr(batching, "_RARELY", batching._OLDEST)
    for turn in (7, 8):
        for _ in range(batching._OLDEST):
            held.batcher.submit(of(["1"])).result(10)
        assert held.groups.count([turn]) == 1
    assert faulty.result(10) == [14, 16]
    held.batcher.close(10.0)


def test_a_list_shares_its_batches_where_others_came_lately(monkeypatch):
    held = Held(most=16, alike=CLOSE)
    held.results(held.batcher.submit(of(["1"] * 12)))
    assert [len(group) for group in held.groups] == [1, 4, 4, 4]
    monkeypatch.setattr(batching, "_LATELY", 0.0)
    held = Held(most=16, alike=CLOSE)
    held.results(held.batcher.submit(of(["1"] * 12)))
    assert [len(group) for group in held.groups] == [1, 12]


def test_many_rows_are_taken_a_few_at_a_time_while_others_wait():
    held = Held(most=16, alike=CLOSE)
    many = [held.batcher.submit(of([str(n)] * 12)) for n in (1, 2)]
    one = [held.batcher.submit(of([str(n)])) for n in range(3, 9)]
    held.results(*many, *one)
    assert held.groups[1] == [1, 2, 3, 4, 5, 6, 7, 8]  # the first row of each
    assert [len(group) for group in held.groups[2:]] == [4] * 5 + [2]


def test_many_rows_get_their_turn_while_others_come_without_end():
    go, asked = threading.Event(), []

    def compute(rows):
        assert go.wait(10)
        if not many.done() and len(asked) < 4000:  # more than a batch takes
            asked.extend(batcher.submit(of(["1"])) for _ in range(8))
        return rows

    batcher = Batcher(lambda _: 10, int, compute, 4, CLOSE)
    batcher.submit(of(["0"]))
    many = batcher.submit(of(["7"] * 20))
    go.set()
    assert many.result(10) == [7] * 20
    assert len(asked) < 4000
    batcher.close(10.0)


def test_a_request_that_waits_alone_fills_the_batches():
    held = Held(most=16)
    held.results(held.batcher.submit(of(["1"] * 40)))
    assert [len(group) for group in held.groups] == [1, 16, 16, 8]


def test_a_short_row_shares_no_batch_with_a_long_one():
    sizes = {"1": 50, "2": 5000, "3": 60, "4": 16_000}
    held = Held(measure=lambda row: sizes.get(row, 10))
    futures = [held.batcher.submit(of([row])) for row in ("1", "2", "3", "4")]
    held.results(*futures)
    assert held.groups == [[0], [1, 3], [2], [4]]


def test_where_rows_are_computed_a_few_at_a_time_like_ones_are_together():
    sizes = {"1": 800, "2": 250, "3": 700, "4": 900, "5": 550, "6": 30, "7": 90}
    held = Held(most=8, measure=lambda row: sizes.get(row, 10), alike=CLOSE)
    held.results(*[held.batcher.submit(of([row])) for row in sizes])
    assert held.groups == [[0], [1, 3, 4], [2], [5], [6, 7]]


def test_a_long_text_does_not_wait_for_all_shorter_ones():
    held = Held(most=1, measure=lambda row: 5000 if row == "1" else 10)
    texts = [held.batcher.submit(of(["1"]), 5000)]
    texts += [held.batcher.submit(of([str(n)]), 30) for n in (2, 3)]
    held.results(*texts)
    assert held.groups == [[0], [1], [2], [3]]


def test_who_has_gone_is_not_computed():
    held = Held()
    gone = held.batcher.submit(of([str(row) for row in range(1000)]))
    half = held.batcher.submit(of(["5", "6", "7"]))
    gone.cancel()
    assert held.results(half) == [[10, 12, 14]]
    assert held.groups == [[0], [5, 6, 7]]


def test_a_wrong_row_fails_its_request_alone():
    held = Held()
    wrong = held.batcher.submit(of(["1", "x", "2"]))
    right = held.batcher.submit(of(["3"]))
    assert held.results(right) == [[6]]
    with pytest.raises(UserError, match="row 1: invalid literal"):
        wrong.result(10)


class Panic(BaseException):
    """As PyO3's: no Exception."""


def test_a_panic_of_the_tokenizers_fails_its_request_alone():
    def measure(row):
        if row == "bomb":
            raise Panic("retry-limit-in-match over")
        return len(row)

    held = Held(measure=measure)
    wrong, right = held.batcher.submit(of(["bomb"])), held.batcher.submit(of(["3"]))
    assert held.results(right) == [[6]]
    with pytest.raises(RuntimeError, match="Panic: retry-limit"):
        wrong.result(10)


def test_an_error_reaches_who_asked_and_not_who_was_computed_with_him():
    began, go = threading.Event(), threading.Event()

    def compute(rows):
        began.set()
        go.wait(10)
        if "bad" in rows:
            raise ValueError("broken")
        return rows

    batcher = Batcher(len, str, compute, 4)
    batcher.submit(of(["first"]))
    began.wait(10)
    bad, good = batcher.submit(of(["bad"])), batcher.submit(of(["good"]))
    go.set()
    assert good.result(10) == ["good"]
    with pytest.raises(ValueError, match="broken"):
        bad.result(10)
    batcher.close(10.0)


def test_no_rows_have_no_answers():
    batcher = Batcher(len, str, lambda rows: 1 / 0, 4)
    assert batcher.submit(of([])).result(10) == []
    batcher.close(10.0)


def test_what_is_long_to_read_is_read_after_the_others():
    held, order = Held(), []

    def read(name):
        return lambda: order.append(name) or [str(len(order))]

    long = [held.batcher.submit(read("long"), 50_000) for _ in range(3)]
    gone = held.batcher.submit(read("gone"), 50_000)
    short = held.batcher.submit(read("short"), 60)
    gone.cancel()
    held.results(short, *long)
    assert order == ["short", "long", "long", "long"]


def test_what_is_long_to_read_gets_its_turn_while_others_come():
    go = threading.Event()

    def compute(rows):
        assert go.wait(10)
        if not long.done():
            batcher.submit(of(["1"]), 60)
        return rows

    batcher = Batcher(len, int, compute, 4)
    batcher.submit(of(["0"]))
    long = batcher.submit(of(["7"] * 500), 50_000)
    go.set()
    assert long.result(10) == [7] * 500
    batcher.close(10.0)


def test_what_cannot_be_read_fails_alone():
    held = Held()
    wrong = held.batcher.submit(lambda: 1 / 0)
    assert held.results(held.batcher.submit(of(["3"]))) == [[6]]
    with pytest.raises(ZeroDivisionError):
        wrong.result(10)
