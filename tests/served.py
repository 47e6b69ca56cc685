"""A server of `--mode=serve` here, without a model, and clients that write bytes."""

import contextlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from bert_jax.data.rows import BatchSize
from bert_jax.serving import server
from bert_jax.serving.batching import Batcher
from bert_jax.training.inference import Answerer

SECONDS = 20.0  # that a client waits


class Model(Answerer):
    """An answerer without a model: `compute` gets the rows of a batch."""

    notices: ClassVar = Counter(cut=2)

    def __init__(
        self, compute: Callable[[list[Any]], list[Any]], rows: int = 4, width: int = 0
    ):
        self._compute, self.size = compute, BatchSize(rows, width)
        self.predictor: Any = self

    def parse_row(self, row: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(row.get("text"), str):
            raise ValueError('a string "text" is required')
        return row

    def start(self, rows: list[Any]) -> Callable[[], list[Any]]:
        return lambda: self._compute(rows) if rows else []


def batcher(
    compute: Callable[[list[Any]], list[Any]] = lambda rows: [{}] * len(rows),
    rows: int = 4,
    width: int = 0,
) -> Batcher:
    """Returns a batcher that has no example, so it compiles nothing ahead."""
    return Batcher(Model(compute, rows, width), None)


@contextlib.contextmanager
def serving(
    compute: Callable[[list[Any]], list[Any]] = lambda rows: [{}] * len(rows),
    host: str = "127.0.0.1",
    hosts: Sequence[str] = (),
    grace: float = 2.0,
) -> Iterator[int]:
    """Yields the port."""
    listening = server.open_port(host, 0)
    app = server.make_application(batcher(compute), {"status": "ok"}, host, *hosts)
    http = server.http_server(app, grace)
    thread = threading.Thread(target=http.run, args=([listening],), daemon=True)
    port = listening.getsockname()[1]
    thread.start()
    try:
        yield port
    finally:
        http.should_exit = True
        thread.join(grace + SECONDS)
        assert not thread.is_alive()


def connected(port: int, host: str = "127.0.0.1", buffer: int = 0) -> socket.socket:
    """Opens a client's connection.

    Args:
      buffer: Bytes that it can have unread. 0 means the system's default.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    if buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.settimeout(SECONDS)
    made.connect((host, port))
    return made


def head(*headers: str, start: str = "POST /predict", host: str = "localhost") -> bytes:
    lines = [f"{start} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n"


def request(content: Any, *headers: str, host: str = "localhost") -> bytes:
    """Returns a whole request. `content` is JSON or bytes."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return head(f"Content-Length: {len(body)}", *headers, host=host) + body


def received(client: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Returns status, headers (names in lower case) and JSON of a client's response.

    It reads until the server closes. Status 0 means no response.
    """
    raw = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 16):
            raw += part
    if not raw:
        return 0, {}, None
    top, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = top.decode().lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    is_json = headers.get("content-type", "").startswith("application/json")
    return (
        int(first.split()[1]),
        headers,
        json.loads(body) if is_json and body else body,
    )


def asked(port: int, raw: bytes, host: str = "127.0.0.1") -> tuple[int, Any]:
    """Status and JSON of the answer to these bytes."""
    with connected(port, host) as client:
        client.sendall(raw)
        status, _, content = received(client)
        return status, content
