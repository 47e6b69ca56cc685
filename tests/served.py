"""A server of `--mode=serve` here, without a model; and clients that write bytes."""

import contextlib
import contextvars
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from ml_collections import ConfigDict

from bert_jax.serving import server
from bert_jax.serving.batching import Batcher
from bert_jax.serving.connections import Connections
from bert_jax.serving.names import Names
from bert_jax.tasks.task import Task

SECONDS = 20.0  # that a client waits
# The address of IPv4 that a thread's clients have; "": the system chooses.
CLIENT = contextvars.ContextVar("CLIENT", default="")


def echo(rows: Sequence[Any]) -> list[str]:
    return [json.dumps(row) for row in rows]


@contextlib.contextmanager
def serving(
    compute: Callable[[Sequence[Any]], list[str]] = echo,
    parse: Callable[[Any], Any] = lambda row: row,
    host: str = "127.0.0.1",
    hosts: Sequence[str] = (),
    seconds: float = SECONDS,
    grace: float = 2.0,
) -> Iterator[int]:
    """Yields the port. `compute` gets rows and gives JSON."""
    task = mock.create_autospec(Task, instance=True)
    task.config = ConfigDict({"task": {"name": "ner"}})
    batcher = Batcher(server.measured, parse, compute, 4)
    service = server.Service(task, batcher, seconds)
    listening = server.bound(host, 0)
    connections = Connections(service.routes(), Names(host, hosts))
    running = server.Running(connections, listening, host)
    try:
        yield listening.getsockname()[1]
    finally:
        running.end(grace)
        assert running.done.done()
        batcher.close(5.0)


def connected(port: int, host: str = "127.0.0.1", buffer: int = 0) -> socket.socket:
    """A client's connection.

    Args:
      buffer: bytes that it can have unread; 0: as the system likes.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    if buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.settimeout(SECONDS)
    if CLIENT.get():
        made.bind((CLIENT.get(), 0))
    made.connect((host, port))
    return made


def head(*headers: str, start: str = "POST /predict", host: str = "localhost") -> bytes:
    lines = [f"{start} HTTP/1.1", f"Host: {host}", *headers]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n"


def request(content: Any, *headers: str, host: str = "localhost") -> bytes:
    """A whole request; `content` is JSON or bytes."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return head(f"Content-Length: {len(body)}", *headers, host=host) + body


def received(client: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of what a client gets until the server closes; status 0:
    nothing."""
    raw = b""
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 16):
            raw += part
    if not raw:
        return 0, {}, None
    top, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = top.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert headers["Content-Length"] == str(len(body))
    is_json = headers["Content-Type"].startswith("application/json")
    return int(first.split()[1]), headers, json.loads(body) if is_json else body


def asked(port: int, raw: bytes, host: str = "127.0.0.1") -> tuple[int, Any]:
    """Status and JSON of the answer to these bytes."""
    with connected(port, host) as client:
        client.sendall(raw)
        status, _, content = received(client)
        return status, content
