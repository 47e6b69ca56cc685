"""HTTP/1.1 with anyone: one request a connection, each step of it bounded in time.

A connection is read, answered and closed. Only names by which the server is meant are
answered, and no page of another site. Bytes are taken as they come; only who has sent a
whole request that is right gets a task, so all others cost little.
"""

import asyncio
import logging
import resource
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping

from bert_jax.serving.messages import (
    BODY_SECONDS,
    HEAD_BYTES,
    HEAD_SECONDS,
    MOST_BYTES,
    SEND_SECONDS,
    Answer,
    Head,
    Refused,
    body_bytes,
    head_of,
    sent,
)
from bert_jax.serving.names import Names
from bert_jax.serving.standing import Standing

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 512
_ACCEPTED = 8  # in one turn of the loop: the others wait for all of them
_LAST = 0.5  # seconds that a request on its way has when the server ends
_LOOK = 0.02  # seconds between two looks at whether all have ended

# A request's body, and whether its client has faults -> the answer.
Route = Callable[[bytes, bool], Awaitable[Answer]]


class Connections:
    """Reads requests, has them answered and writes the answers.

    Args:
      routes: path -> method -> what answers a request's body.
      names: whom clients may mean.

    Attributes:
      all: the connections.
      reading: those whose request is not yet whole, the oldest first.
      standing: of the addresses.
    """

    def __init__(self, routes: Mapping[str, Mapping[str, Route]], names: Names):
        self._routes, self.names = routes, names
        self.all: set[_Connection] = set()
        self.reading: dict[_Connection, None] = {}
        self.standing = Standing()
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files == resource.RLIM_INFINITY:
            files = 2 * MOST_CONNECTIONS
        self._most = min(MOST_CONNECTIONS, files // 2)

    async def listen(self, listening: socket.socket) -> asyncio.Server:
        """Begins to answer on a bound socket."""
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self), sock=listening, backlog=_ACCEPTED
        )
        listening.listen(1024)  # who comes in a crowd waits here
        return server

    async def end(self, server: asyncio.Server, seconds: float) -> None:
        """Answers what has arrived, in so many seconds, and cuts the rest."""
        server.close()
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        await _until(loop.time() + min(_LAST, seconds), self.reading)
        for one in list(self.reading):
            one.cut()
        await _until(end, self.all)
        for one in list(self.all):
            one.cut()
        if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(tasks, timeout=_LAST)

    def admits(self, one: "_Connection") -> bool:
        """Whether there is room for it; who takes long to ask makes room."""
        if len(self.all) >= self._most:
            if not self.reading:
                return False
            next(iter(self.reading)).cut()
        self.all.add(one)
        self.reading[one] = None
        return True

    def route(self, head: Head) -> Route:
        """What answers it.

        Raises:
          Refused: nothing does.
        """
        methods = self._routes.get(head.path)
        if methods is None:
            raise Refused(404, f"{head.path[:100]}: there is no such page")
        route = methods.get("GET" if head.method == "HEAD" else head.method)
        if route is None:
            allowed = ", ".join(methods)
            text = f"{head.method}: {head.path} takes {allowed}"
            raise Refused(405, text, f"Allow: {allowed}")
        return route


async def _until(end: float, connections: Collection) -> None:
    loop = asyncio.get_running_loop()
    while connections and loop.time() < end:
        await asyncio.sleep(_LOOK)


class _Connection(asyncio.Protocol):
    """A request, and its answer."""

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle
    _route: Route

    def __init__(self, connections: Connections):
        self._connections, self._loop = connections, asyncio.get_running_loop()
        self._waits_for = "headers"  # or "body"; "" if the request is whole or refused
        self._bytes, self._length = bytearray(), 0
        self._beyond = HEAD_BYTES  # so many are read that belong to no request
        self._with_body, self._ended = True, False  # answered, refused or cut
        self._task: asyncio.Task | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._address = (transport.get_extra_info("peername") or ("",))[0]
        self._limit(HEAD_SECONDS)
        if not self._connections.admits(self):
            self._waits_for = ""
            full = Refused(503, "too many connections", "Retry-After: 1")
            self._send(full.answer)

    def data_received(self, data: bytes) -> None:
        if not self._waits_for:
            self._read_beyond(len(data))
            return
        self._bytes += data
        try:
            if self._waits_for == "headers":
                self._read_head(len(data))
        except Refused as refused:
            self._refuse(refused)
            return
        if self._waits_for == "body" and len(self._bytes) >= self._length:
            self._waits_for = ""
            self._timer.cancel()
            del self._connections.reading[self]
            # In the turn after the next one: hears of who closed behind the request.
            self._loop.call_soon(self._loop.call_soon, self._begin)
            self._read_beyond(len(self._bytes) - self._length)

    def _read_beyond(self, count: int) -> None:
        self._beyond -= count
        if self._beyond < 0:
            self.cut()

    def _read_head(self, new: int) -> None:
        end = self._bytes.find(b"\r\n\r\n", max(0, len(self._bytes) - new - 3))
        if max(end, 0 if end >= 0 else len(self._bytes)) > HEAD_BYTES:
            raise Refused(431, f"headers of more than {HEAD_BYTES:,} bytes")
        if end < 0:
            return
        head = head_of(bytes(self._bytes[:end]))
        self._with_body = head.method != "HEAD"
        here = self._transport.get_extra_info("sockname")[0]
        self._connections.names.check(head.headers, here)
        self._route = self._connections.route(head)
        self._length = body_bytes(head)
        if head.headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        del self._bytes[: end + 4]
        self._waits_for = "body"
        self._limit(BODY_SECONDS)

    def _limit(self, seconds: float) -> None:
        """Says that what comes next takes so long at most."""
        if hasattr(self, "_timer"):
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._late, seconds)

    def _late(self, seconds: float) -> None:
        if not self._waits_for:
            self.cut()
            return
        text = f"{self._waits_for}: not here after {seconds:g} s"
        self._refuse(Refused(408, text))

    def _begin(self) -> None:
        if not self._transport.is_closing():
            self._task = self._loop.create_task(self._answer())

    async def _answer(self) -> None:
        body = bytes(self._bytes[: self._length])
        self._bytes.clear()
        now, standing = self._loop.time(), self._connections.standing
        faulty = standing.faulty(self._address, now)
        try:
            answer = await _answered(self._route, body, faulty)
        except Refused as refused:
            answer = refused.answer
        self._send(answer)

    def _send(self, answer: Answer) -> None:
        """Closes the connection when the system has all of the answer."""
        self._ended = True
        self._limit(SEND_SECONDS)
        self._transport.write(sent(answer, with_body=self._with_body))
        self._transport.close()

    def _refuse(self, refused: Refused) -> None:
        """Answers; reads on, as an answer is lost if what was sent stays unread."""
        self._waits_for, self._beyond = "", 2 * MOST_BYTES
        self._bytes.clear()
        self._fault()
        self._limit(1.0)
        self._transport.write(sent(refused.answer, with_body=self._with_body))
        self._transport.write_eof()

    def _fault(self) -> None:
        """Counts one, if the request has no end yet."""
        if not self._ended:
            self._connections.standing.add(self._address, self._loop.time())
        self._ended = True

    def eof_received(self) -> None:
        self.cut()

    def connection_lost(self, _: Exception | None) -> None:
        self.cut()

    def cut(self) -> None:
        """Ends it, whatever its state; what is computed for it is cancelled."""
        self._fault()
        self._transport.abort()
        self._timer.cancel()
        self._bytes.clear()
        if self._task:
            self._task.cancel()
        self._connections.all.discard(self)
        self._connections.reading.pop(self, None)


async def _answered(route: Route, body: bytes, faulty: bool) -> Answer:
    try:
        return await route(body, faulty)
    except Refused:
        raise
    except Exception as error:  # whatever it is, the others are still served
        log.exception("a request failed")
        text = f"{type(error).__name__}: {str(error)[:150]}"
        raise Refused(500, text) from error
