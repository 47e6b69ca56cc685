"""Rows of many requests, in turn and computed together."""

import contextlib
import heapq
import itertools
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, NamedTuple

from bert_jax.errors import UserError

Answers = list[Any]
Read = Callable[[], Sequence[Any]]

_READ = 20_000  # characters that are read for a batch
_EACH = 100  # what a row costs besides its characters
_LATELY = 1.0  # seconds after which nobody without faults is expected to ask
_CALM = 0.05  # seconds without a request of such a client: now others have their turn
_OLDEST = 16  # of so many batches, one begins with who has waited longest, and has no
_RARELY = 8 * _OLDEST  # faults; of so many, one with who has waited longest of all


class _Request:
    """A request's rows; `next` is the first that is not yet taken.

    `cost` is what it has taken of the thread, in characters; for a new one only what
    is long to read counts, so that a long text waits its turn and not for all shorter
    ones.
    """

    def __init__(self, read: Read, characters: int, number: int, faulty: bool):
        self.read: Read | None = read
        self.characters, self.number, self.faulty = characters, number, faulty
        self.cost = characters if characters > _READ else 0
        self.due = False  # its next row is taken before all others
        self.rows: Sequence[Any] = ()
        self.answers: Answers = []
        self.next = self.left = 0
        self.size: int | None = None  # of the next row
        self.future: Future[Answers] = Future()
        self.future.add_done_callback(self._forget)

    def _forget(self, _: "Future[Answers]") -> None:
        self.read, self.rows, self.answers = None, (), []

    def begin(self) -> None:
        """Reads the rows, if that is not done."""
        if (read := self.read) is None:
            return
        try:
            self.rows = read()
        except BaseException as error:  # whatever it is, those who wait get it
            self.fail(error)
            return
        self.read, self.left = None, len(self.rows)
        self.answers = [None] * self.left
        if not self.rows:
            self.finish()

    def fail(self, error: BaseException) -> None:
        if not isinstance(error, Exception):  # a panic of the tokenizers, in Rust
            error = RuntimeError(f"{type(error).__name__}: {error}")
        with contextlib.suppress(InvalidStateError):  # its client has gone
            self.future.set_exception(error)

    def take(self, place: int, answer: Any) -> None:
        with contextlib.suppress(IndexError):  # as below
            self.answers[place], self.left = answer, self.left - 1
            if not self.left:
                self.finish()

    def finish(self) -> None:
        with contextlib.suppress(InvalidStateError):  # its client has gone
            self.future.set_result(self.answers)

    @property
    def _rank(self) -> tuple[bool, bool, int, int]:
        return not self.due, self.faulty, self.cost, self.number

    def __lt__(self, other: "_Request") -> bool:
        return self._rank < other._rank


_Row = tuple[_Request, int]


class Alike(NamedTuple):
    """Which rows share a batch, in which the shorter ones are padded.

    Attributes:
      times: the longest is at most so many times the first.
      short: or has at most so many characters.
      padded: the first is at most so many times the shortest; or `short`.
      together: the characters of all, with _EACH; a row alone may have more.
      few: rows to which later rows of a request are added only if nobody else waits or
        has come lately.
    """

    times: float = 4.0
    short: int = 400
    padded: float = math.inf
    together: int = 20_000
    few: float = math.inf

    def bounds(self, size: int) -> tuple[float, float]:
        """The characters of what may join a first row of `size`."""
        least = 0.0 if size <= self.short else size / self.padded
        return least, max(self.times * size, float(self.short))


ANY = Alike()
# Where rows are computed a few at a time, more rows gain little, padding costs, and who
# asks next waits for all.
CLOSE = Alike(1.25, 100, 1.25, 3000, 4)


class Batcher:
    """Computes in a thread; while it does, the next rows gather.

    The next row is of a client without faults, if one waits or came lately, and of the
    request that has cost the least, so a request of few rows waits for a batch or two,
    whatever others have sent; and that of the oldest in one batch of sixteen, even with
    faults in one of 128, so that each gets its turn however many others come.

    Args:
      measure: a row's size in characters.
      parse: row -> what `compute` needs.
      compute: parsed rows -> the answer to each.
      most: rows computed together.
      alike: which ones.

    A ValueError of `measure` or `parse` fails the row's request: a UserError with the
    row's number.
    """

    def __init__(
        self,
        measure: Callable[[Any], int],
        parse: Callable[[Any], Any],
        compute: Callable[[Sequence[Any]], Answers],
        most: int,
        alike: Alike = ANY,
    ):
        self._measure, self._parse, self._compute = measure, parse, compute
        self.most, self._alike = most, alike
        self._came: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._waiting: list[_Request] = []  # a heap, of the thread alone
        # When requests of clients without faults came, the last and the one before.
        self._faultless = self._earlier = 0.0
        self._numbers, self._batches, self._ends = itertools.count(), 0, False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(
        self, read: Read, characters: int = 0, faulty: bool = False
    ) -> "Future[Answers]":
        """The answers to a request's rows; to cancel it takes them from the queue.

        Args:
          read: gives the rows, when it is their turn.
          characters: to be read.
          faulty: whether the client has left requests lately, say; see `Standing`.
        """
        request = _Request(read, characters, next(self._numbers), faulty)
        if not faulty:
            self._earlier, self._faultless = self._faultless, time.monotonic()
        self._came.put(request)
        return request.future

    def close(self, seconds: float | None = None) -> None:
        """Ends the thread after the batch that it computes, or leaves it."""
        self._ends = True
        self._came.put(None)
        self._thread.join(seconds)

    def _work(self) -> None:
        while not self._ends:
            self._gather()
            if group := self._next_group():
                self._answer(group)
            # One that is long to read, after each batch: rows wait for one at most, and
            # it gets its turn however many others come.
            unread = min((one for one in self._waiting if one.read), default=None)
            if unread and not self._before(unread):
                unread.begin()

    def _gather(self) -> None:
        """Takes in what has come; waits for it if there is nothing else to do."""
        self._waiting = [one for one in self._waiting if not one.future.done()]
        heapq.heapify(self._waiting)
        while (rest := self._rest()) != 0 or not self._came.empty():
            try:
                request = self._came.get(timeout=rest)
            except queue.Empty:
                return
            if request is None:
                return
            heapq.heappush(self._waiting, request)

    def _rest(self) -> float | None:
        """The seconds to wait for other requests; None: for whenever one comes."""
        if not self._waiting:
            return None
        return self._before(self._waiting[0])

    def _before(self, request: _Request) -> float:
        """The seconds that a request waits for others that may come."""
        calm = self._faultless + _CALM - time.monotonic()
        return max(0.0, calm) if request.faulty and not request.due else 0.0

    def _next_group(self) -> list[_Row]:
        group: list[_Row] = []
        aside: list[_Request] = []
        least, longest, room, to_read = 0.0, 0.0, self._alike.together, _READ
        others = len(self._waiting) > 1 or time.monotonic() - self._earlier < _LATELY
        enough = self._alike.few if others else self.most
        self._batches += 1
        if not self._batches % _OLDEST:
            rarely = self._batches % _RARELY == 0
            turns = [one for one in self._waiting if rarely or not one.faulty]
            if turns:
                oldest = min(turns, key=lambda one: one.number)
                oldest.due, oldest.cost = True, 0
                heapq.heapify(self._waiting)
        while self._waiting and len(group) < self.most and len(aside) < self.most:
            if group and self._is_whole(group, self._waiting[0], enough):
                break
            request = heapq.heappop(self._waiting)
            if request.read and request.characters > to_read:
                aside.append(request)
                continue
            to_read -= request.characters if request.read else 0
            request.begin()
            if request.future.done() or not self._sized(request):
                continue
            size = request.size or 0
            if not group:
                least, longest = self._alike.bounds(size)
            elif not least <= size <= min(longest, room):
                aside.append(request)
                continue
            room -= size + _EACH
            group.append((request, request.next))
            request.next, request.size, request.due = request.next + 1, None, False
            request.cost += size + _EACH
            if request.next < len(request.rows):
                heapq.heappush(self._waiting, request)
        for request in aside:
            heapq.heappush(self._waiting, request)
        return group

    def _is_whole(
        self, group: list[_Row], following: _Request, enough: int | float
    ) -> bool:
        """Whether a batch ends before the next row."""
        faulty = group[0][0].faulty
        if faulty and time.monotonic() - self._faultless < _LATELY:
            return True  # who asks now waits for one row
        return following.faulty > faulty or (
            len(group) >= enough and following.next > 0
        )

    def _sized(self, request: _Request) -> bool:
        """Measures the next row; False if the request has failed by that."""
        if request.size is None:
            request.size = _of_row(request, request.next, self._measure)
        return request.size is not None

    def _answer(self, group: Sequence[_Row]) -> None:
        parsed = []
        for request, place in group:
            if not request.future.done():
                one = _of_row(request, place, self._parse)
                parsed.append((request, place, one))
        live = [each for each in parsed if not each[0].future.done()]
        if not live:
            return
        try:
            answers = self._compute([one for _, _, one in live])
        except BaseException as error:  # as above
            requests = {request for request, _, _ in live}
            for request in requests:
                if len(requests) == 1:
                    request.fail(error)
                else:  # one's row must not fail the others'
                    self._answer([(one, at) for one, at, _ in live if one is request])
            return
        for (request, place, _), answer in zip(live, answers, strict=True):
            request.take(place, answer)


def _of_row(request: _Request, place: int, function: Callable[[Any], Any]) -> Any:
    """A function's result for a row; None, and the request has failed, if it raises."""
    try:
        return function(request.rows[place])
    except ValueError as error:
        request.fail(UserError(f"row {place}: {error}"))
    except BaseException as error:  # as above
        request.fail(error)
    return None
