"""HTTP/1.1 with anyone: one request a connection, each step of it bounded in time.

A connection is read, answered and closed. Only names by which the server is meant are
answered, and no page of another site.
"""

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import Awaitable, Callable, Mapping

from bert_jax.serving.messages import (
    BODY_SECONDS,
    HEAD_BYTES,
    HEAD_SECONDS,
    MOST_BYTES,
    Answer,
    Head,
    Refused,
    limit,
    read_body,
    read_head,
    send,
)
from bert_jax.serving.names import Names

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 512
_LAST = 0.5  # seconds that a request on its way has when the server ends

Route = Callable[[bytes], Awaitable[Answer]]


class Connections:
    """Reads requests, has them answered and writes the answers.

    Args:
      routes: path -> method -> what answers a request's body.
      names: whom clients may mean.
    """

    def __init__(self, routes: Mapping[str, Mapping[str, Route]], names: Names):
        self._routes, self._names = routes, names
        self._all: set[asyncio.Task] = set()
        # Those whose request is not yet whole, the oldest first.
        self._read: dict[asyncio.Task, None] = {}
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files == resource.RLIM_INFINITY:
            files = 2 * MOST_CONNECTIONS
        self._most = min(MOST_CONNECTIONS, files // 2)

    async def listen(self, listening: socket.socket) -> asyncio.Server:
        """Begins to answer on a bound socket."""
        server = await asyncio.start_server(
            self._connected, sock=listening, limit=HEAD_BYTES, backlog=self._most // 4
        )
        listening.listen(1024)  # who comes in a crowd waits here
        return server

    async def end(self, server: asyncio.Server, seconds: float) -> None:
        """Answers what has arrived, in so many seconds, and cuts the rest."""
        server.close()
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        await _within(min(_LAST, seconds), set(self._read))
        for task in self._read:
            task.cancel()
        await _within(end - loop.time(), self._all)
        for task in self._all:
            task.cancel()
        await _within(_LAST, self._all)

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        crowded = len(self._all) >= self._most
        self._all.add(task)
        try:
            if crowded and not self._read:
                full = Refused(503, "too many connections", "Retry-After: 1")
                await send(writer, full.answer)
                return
            if crowded:  # who takes long to ask makes room
                oldest = next(iter(self._read))
                del self._read[oldest]
                oldest.cancel()
            self._read[task] = None
            await self._converse(task, reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the client has gone, takes too long (a TimeoutError), or is cut
        finally:
            writer.transport.abort()
            self._all.discard(task)
            self._read.pop(task, None)

    async def _converse(
        self,
        task: asyncio.Task,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        head = None
        try:
            async with limit(HEAD_SECONDS, "headers"):
                head = await read_head(reader)
            self._names.check(head.headers, writer.get_extra_info("sockname")[0])
            route = self._route(head)
            async with limit(BODY_SECONDS, "body"):
                body = await read_body(reader, writer, head)
            self._read.pop(task, None)
            await asyncio.sleep(0)  # hears of who closed behind the request
            if reader.at_eof():
                return
            answer = await _unless_left(reader, _answered(route, body))
        except Refused as refused:
            answer = refused.answer
        await send(writer, answer, with_body=head is None or head.method != "HEAD")
        if task in self._read:  # an answer is lost if what was sent stays unread
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    writer.write_eof()
                    left = 2 * MOST_BYTES
                    while left > 0 and (part := await reader.read(HEAD_BYTES)):
                        left -= len(part)

    def _route(self, head: Head) -> Route:
        methods = self._routes.get(head.path)
        if methods is None:
            raise Refused(404, f"{head.path[:100]}: there is no such page")
        route = methods.get("GET" if head.method == "HEAD" else head.method)
        if route is None:
            allowed = ", ".join(methods)
            text = f"{head.method}: {head.path} takes {allowed}"
            raise Refused(405, text, f"Allow: {allowed}")
        return route


async def _within(seconds: float, tasks: set[asyncio.Task]) -> None:
    if tasks:
        await asyncio.wait(set(tasks), timeout=max(seconds, 0))


async def _answered(route: Route, body: bytes) -> Answer:
    try:
        return await route(body)
    except Refused:
        raise
    except Exception as error:  # whatever it is, the others are still served
        log.exception("a request failed")
        text = f"{type(error).__name__}: {str(error)[:150]}"
        raise Refused(500, text) from error


async def _unless_left(
    reader: asyncio.StreamReader, answering: Awaitable[Answer]
) -> Answer:
    """The answer, unless the client goes before; then what makes it is cancelled.

    Raises:
      ConnectionError: the client has gone.
    """

    async def leaves() -> None:
        with contextlib.suppress(OSError, EOFError):
            await reader.readexactly(HEAD_BYTES)  # of what belongs to no request

    answer, left = asyncio.ensure_future(answering), asyncio.ensure_future(leaves())
    try:
        await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ConnectionError("the client has gone")
        return answer.result()
    finally:
        answer.cancel()
        left.cancel()
