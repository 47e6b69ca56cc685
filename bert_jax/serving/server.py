"""`--mode=serve`: answers rows over HTTP, and on a page for a browser.

POST /predict   a row, or a list of rows, as JSON -> the same with the answers
GET  /health    {"status": "ok", "task": ...}
GET  /          the page
"""

import asyncio
import contextlib
import functools
import gc
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path as LocalPath
from typing import Any

import jax.monitoring

from bert_jax import answering
from bert_jax.errors import UserError
from bert_jax.runtime import untrusted
from bert_jax.runtime.storage import Path
from bert_jax.serving import ahead
from bert_jax.serving.batching import ANY, CLOSE, Batcher
from bert_jax.serving.connections import Connections
from bert_jax.serving.messages import Answer, Refused
from bert_jax.serving.names import Names
from bert_jax.tasks import row_files
from bert_jax.tasks.task import Task

log = logging.getLogger(__name__)

PAGE = LocalPath(__file__).with_name("page.html")
MOST_ROWS = 10_000  # of a request
MOST_CHARACTERS = 100_000  # of a row
# Requests of more than so many bytes are large: so many of them at a time.
LARGE_BYTES, MOST_LARGE = 65_536, 32
_PAUSE = 0.2  # seconds between two looks at whether the server has ended
_SWITCH = 5e-4  # seconds
_ALLOCATIONS = 10_000  # of objects, between two looks for garbage; by default 700
_LEFT = 1.0  # seconds for threads to end, after the grace
# The page is one file, and is not shown inside another site's.
_POLICY = (
    "Content-Security-Policy: default-src 'self'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; frame-ancestors 'none'"
)


def serve(task: Task, folder: Path, host: str, port: int) -> None:
    """Serves until a signal ends it.

    Args:
      folder: the work directory with the checkpoint.
      port: 0: any that is free; the address is logged.

    Raises:
      UserError: the port is taken; nothing is loaded then.
      Interrupted: a signal ended it; requests that had arrived are answered, or cut
        after `config.serve.grace_seconds`.
    """
    listening = bound(host, port)
    jax.monitoring.register_event_duration_secs_listener(_keep)
    model = answering.of_task(task, folder)
    if model.size.width:
        model = model._replace(ask=ahead.of_task(task, model, _fields(task)))

    def parse(row: Any) -> Any:
        return row, answering.parsed_row(model.predictor, row)

    alike = CLOSE if model.size.width else ANY
    compute = functools.partial(computed, model.answer)
    batcher = Batcher(measured, parse, compute, model.size.rows, alike)
    fields = task.config.serve
    service = Service(task, batcher, fields.request_seconds)
    names = Names(host, fields.hosts)
    running = Running(Connections(service.routes(), names), listening, host)
    try:
        while not running.done.done():
            time.sleep(_PAUSE)
        running.done.result()
    finally:
        running.end(fields.grace_seconds)
        batcher.close(_LEFT)


def _keep(event: str, *_: Any, **__: Any) -> None:
    """Looks no more for garbage among what a compiled program leaves: it stays, and all
    would wait for the look, 0.4 s after some hundred programs."""
    if event.endswith("backend_compile_duration"):
        gc.collect()
        gc.freeze()


def computed(answer: Callable[[Sequence[Any]], Any], rows: Sequence[Any]) -> list[str]:
    """The answers to rows and their parsed form, as JSON.

    Raises:
      Refused: the model fails, not a row.
    """
    try:
        answers = answer([parsed for _, parsed in rows])
    except UserError as error:
        log.error("%s", error)
        raise Refused(500, str(error)) from error
    return [_text(*pair) for pair in zip(rows, answers, strict=True)]


def bound(host: str, port: int) -> socket.socket:
    """A socket of that address, which nobody can connect to yet.

    Raises:
      UserError: there is no such address, or its port is taken.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, *_, address = min(addresses, key=lambda each: each[0] != socket.AF_INET)
    except (OSError, UnicodeError) as error:
        raise UserError(
            f"--host={host[:100]}: no address of this machine ({error}); name one, "
            "such as 127.0.0.1"
        ) from error
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6 and hasattr(socket, "IPV6_V6ONLY"):  # `::` is both
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        made.bind(address)
    except OSError as error:
        made.close()
        raise _unusable(host, port, error) from error
    return made


def _unusable(host: str, port: int, error: OSError) -> UserError:
    return UserError(
        f"--port={port}: cannot be used on {host} ({error.strerror}); name another, or "
        "--port=0 for any that is free"
    )


class Running:
    """Connections that are answered in a thread, until `end`.

    Attributes:
      done: is set when the thread ends; to its error, if there is one.

    Raises:
      UserError: another program has taken the port meanwhile.
    """

    def __init__(self, connections: Connections, listening: socket.socket, host: str):
        address, port = listening.getsockname()[:2]
        try:
            listening.listen()
        except OSError as error:
            raise _unusable(host, port, error) from error
        self.done: Future[None] = Future()
        self._connections, self._listening = connections, listening
        self._loop = asyncio.new_event_loop()
        self._ends, self._grace = asyncio.Event(), 0.0
        # The thread that computes gives way to this one within a short time, and back;
        # by default each waits 5 ms for the other, dozens of times a batch.
        sys.setswitchinterval(_SWITCH)
        # Rows of one request are enough for a look by default, and all wait for each;
        # requests leave hardly any garbage.
        gc.set_threshold(_ALLOCATIONS)
        # In a thread, where it sets no handlers: signals end the program as ever.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        shown = f"[{address}]" if ":" in address else address
        log.info("serving on http://%s:%d (stop with Ctrl-C)", shown, port)

    def end(self, grace: float) -> None:
        """Ends it in so many seconds, and some for what is cut."""
        self._grace = grace
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join(grace + 2 * _LEFT)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
            self.done.set_result(None)
        except BaseException as error:
            self.done.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await self._connections.listen(self._listening)
        await self._ends.wait()
        await self._connections.end(server, self._grace)


class Service:
    """What is served.

    Args:
      seconds: that a request may take.
    """

    def __init__(self, task: Task, batcher: Batcher, seconds: float):
        self._batcher, self._seconds, self._large = batcher, seconds, 0
        name = task.config.task.name
        self._about = {"status": "ok", "task": name, "fields": _fields(task)}
        self._page = PAGE.read_text(encoding="utf-8")

    def routes(self) -> Any:
        """Path -> method -> what answers a body."""
        return {
            "/predict": {"POST": self.predict},
            "/health": {"GET": self.health},
            "/": {"GET": self.page},
        }

    async def predict(self, body: bytes, faulty: bool) -> Answer:
        """The rows of the body with their answers, as JSON."""
        is_list = False

        def read() -> Sequence[Any]:
            nonlocal is_list
            request = untrusted.parse(body, "the request")
            is_list = isinstance(request, list)
            rows = request if is_list else [request]
            if len(rows) > MOST_ROWS:
                raise UserError(f"{len(rows):,} rows; send at most {MOST_ROWS:,}")
            return rows

        large = len(body) > LARGE_BYTES
        with self._room() if large else contextlib.nullcontext():
            try:
                asked = self._batcher.submit(read, len(body), faulty)
                texts = await self._answers(asked)
            except UserError as error:
                raise Refused(400, str(error)) from error
        return Answer(200, f"[{', '.join(texts)}]" if is_list else texts[0])

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        if self._large == MOST_LARGE:
            text = f"{MOST_LARGE} large requests are being answered; ask again, or less"
            raise Refused(503, text, "Retry-After: 5")
        self._large += 1
        try:
            yield
        finally:
            self._large -= 1

    async def _answers(self, future: "Future[list[Any]]") -> Sequence[str]:
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            text = f"not answered within {self._seconds:g} s; send less at once"
            raise Refused(503, text, "Retry-After: 10") from error

    async def health(self, *_: Any) -> Answer:
        """That the server is there, and what it is asked for."""
        return Answer(200, json.dumps(self._about))

    async def page(self, *_: Any) -> Answer:
        """The page for a browser."""
        return Answer(200, self._page, "text/html", (_POLICY,))


def measured(row: Any) -> int:
    """A row's size in characters.

    Raises:
      ValueError: it is too long, or has a number that is none.
    """
    try:
        size = len(json.dumps(row, ensure_ascii=False, allow_nan=False))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValueError as error:
        raise ValueError("NaN and infinite numbers are not JSON") from error
    if size > MOST_CHARACTERS:
        raise ValueError(
            f"{size:,} characters; at most {MOST_CHARACTERS:,} are answered here, and "
            "any number by --mode=predict"
        )
    return size


def _text(parsed: tuple[dict[str, Any], Any], answer: dict[str, Any]) -> str:
    row = row_files.answered(parsed[0], row_files.rounded(answer))
    return json.dumps(row, allow_nan=False)


def _fields(task: Task) -> list[str]:
    """What the page's form has; a task of one's own has texts."""
    match task.config.task.name:
        case "squad":
            return ["question", "context"]
        case "swag":
            return ["context", "endings"]
        case "ner":
            return ["text"]
        case "pretraining":
            pairs = task.config.corpus.nsp
        case _:
            pairs = getattr(task, "pairs", True)
    return ["text", "text_b"] if pairs else ["text"]
