"""What a hostile client of `--mode=serve` does: by a number, always the same."""

import contextlib
import json
import random
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.served import connected, head, received, request

# Statuses with which a request may end; 0: cut without an answer.
CUT = 0
HELD = 0.3  # seconds at most that a client holds a connection, but for `patience`
_RESET = struct.pack("ii", 1, 0)
_LIMIT = 15.0  # seconds that an answer may take


class Client(NamedTuple):
    """One drawn client.

    Attributes:
      kind: what it does.
      about: in words.
      run: does it at a port; gives what is wrong with what came of it, or "".
    """

    kind: str
    about: str
    run: Callable[[int], str]


def draw(number: int, seed: int) -> Client:
    """The client of a number: each kind in turn."""
    rng = random.Random(f"{seed}:{number}")
    kinds = list(KINDS)
    kind = kinds[number % len(kinds)]
    about, run = KINDS[kind](rng)
    return Client(kind, about, run)


Drawn = tuple[str, Callable[[int], str]]


def row(rng: random.Random) -> dict[str, Any]:
    words = ["the", "quick", "brown", "[MASK]", "jumps", "over", "a", "lazy", "dog"]
    return {"text": " ".join(rng.choices(words, k=rng.randint(1, 30)))}


def rows(rng: random.Random) -> Any:
    """One row, some, or two thousand."""
    count = rng.choice([0, 1, 5, 40, 2000])
    return [row(rng) for _ in range(count)] if count else row(rng)


def _expecting(raw: bytes, statuses: set[int], ends: bool = False) -> Callable:
    """Sends it and judges the answer.

    Args:
      ends: closes its side for writing, as `nc -N` does.
    """

    def run(port: int) -> str:
        start = time.monotonic()
        with connected(port) as client:
            with contextlib.suppress(ConnectionError):  # refused before it was read
                client.sendall(raw)
                if ends:
                    client.shutdown(socket.SHUT_WR)
            try:
                status, headers, said = received(client)
            except (ValueError, AssertionError, KeyError, IndexError) as error:
                return f"no answer of HTTP: {type(error).__name__}: {error}"
        if (took := time.monotonic() - start) > _LIMIT:
            return f"took {took:.1f} s"
        if status not in statuses:
            return f"status {status}, not {sorted(statuses)}: {str(said)[:200]}"
        if status >= 400 and not (isinstance(said, dict) and list(said) == ["error"]):
            return f"status {status} without its error: {str(said)[:200]}"
        if status == 503 and "Retry-After" not in headers:
            return "status 503 without Retry-After"
        return ""

    return run


def stops(rng: random.Random) -> Drawn:
    """Sends a part of a request, holds it, and closes, resets or half closes."""
    raw = request(rows(rng))
    part = raw[: rng.choice([rng.randint(0, 90), rng.randint(0, len(raw) - 1)])]
    held, end = rng.uniform(0, HELD), rng.choice(["close", "reset", "half"])

    def run(port: int) -> str:
        with connected(port) as client:
            client.sendall(part)
            time.sleep(held)
            return _end(client, end)

    return f"{len(part)} of {len(raw)} bytes, {held:.2f} s, {end}", run


def _end(client: socket.socket, end: str) -> str:
    if end == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    if end != "half":
        return ""
    client.shutdown(socket.SHUT_WR)
    status, *_ = received(client)
    return "" if status == CUT else f"status {status} for half a request"


def drips(rng: random.Random) -> Drawn:
    """Sends a request byte by byte; it is answered all the same."""
    raw = request(row(rng))
    pause = rng.uniform(0, HELD) / len(raw)

    def run(port: int) -> str:
        with connected(port) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for place in range(len(raw)):
                client.sendall(raw[place : place + 1])
                time.sleep(pause)
            status, *_ = received(client)
        return "" if status == 200 else f"status {status}"

    return f"{len(raw)} bytes, {1000 * pause:.1f} ms between two", run


def never_reads(rng: random.Random) -> Drawn:
    """Asks much and reads nothing."""
    raw, held = request(rows(rng)), rng.uniform(0, HELD)
    end = rng.choice(["close", "reset"])

    def run(port: int) -> str:
        with connected(port, buffer=1000) as client:
            client.sendall(raw)
            time.sleep(held)
            return _end(client, end)

    return f"{len(raw)} bytes, {held:.2f} s, {end}", run


def leaves(rng: random.Random) -> Drawn:
    """Asks and closes at once."""
    raw, end = request(rows(rng)), rng.choice(["close", "reset"])

    def run(port: int) -> str:
        with connected(port) as client:
            client.sendall(raw)
            return _end(client, end)

    return f"{len(raw)} bytes, {end}", run


def floods(rng: random.Random) -> Drawn:
    """Many connections at once, each with a part of a request or a whole."""
    raw = request(rows(rng))
    cuts = [rng.choice([0, 20, len(raw)]) for _ in range(rng.randint(10, 60))]

    def run(port: int) -> str:
        with contextlib.ExitStack() as stack:
            for cut in cuts:
                client = stack.enter_context(connected(port))
                with contextlib.suppress(ConnectionError):  # another needs its place
                    client.sendall(raw[:cut])
        return ""

    return f"{len(cuts)} connections, {len(raw)} bytes", run


def hosts(rng: random.Random) -> Drawn:
    """Names that are not the server's."""
    known = rng.choice(["localhost", "127.0.0.1"])
    name = rng.choice(
        [
            *("evil.example", f"{known}.evil.example", f"evil.example:{known}"),
            *(f"x{known}", f"{known}@evil", f"evil/{known}", "[::1]", "127.0.0.2", ""),
            *(f"{known} evil", "0x7f.1", "2130706433", "\xe9", "a" * 5000, "[", ":80"),
        ]
    )
    raw = request(row(rng), host=name)
    return f"Host: {name[:40]!r}", _expecting(raw, {400, 421})


def origins(rng: random.Random) -> Drawn:
    """Pages of other sites, with a Host that is right."""
    name = rng.choice(
        [
            *("http://evil", "null", "http://localhost:3000", "http://localhost.evil"),
            *("https://evil.example", "file://", "http://localhost@evil", "localhost"),
            *("http://evil#localhost", "chrome-extension://abc", "", "http://"),
        ]
    )
    kind = rng.choice(["text/plain", "application/json", "multipart/form-data"])
    raw = request(row(rng), f"Origin: {name}", f"Content-Type: {kind}")
    return f"Origin: {name!r}, {kind}", _expecting(raw, {403})


def heads(rng: random.Random) -> Drawn:
    """First lines and headers that are none, or not of this server."""
    long = "x" * rng.choice([20_000, 200_000])
    junk = bytes(rng.choices(range(256), k=rng.randint(1, 300)))
    raw, statuses = rng.choice(
        [
            (junk.replace(b"\r\n\r\n", b"") + b"\r\n\r\n", {400}),
            (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", {400}),  # TLS
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400}),
            (head(start=f"GET /{long}"), {431}),
            (head(f"X: {long}"), {431}),
            (head(*(f"X{i}: 1" for i in range(3000))), {431}),
            (head(start="GET /../../etc/passwd"), {404}),
            (head(start="GET http://evil/"), {400}),
            (head(start="GET /%00"), {404}),
            (head(start=rng.choice(["PUT", "DELETE", "OPTIONS"]) + " /predict"), {405}),
            (head(start="POST /health"), {405}),
            (head(start="BREW /"), {405}),
            (head("Host: evil"), {400}),
            (head("Content-Length: 5", "Content-Length: 7") + b"{}", {400}),
            (head(f"Content-Length: {rng.choice(['-1', '1e3', '', '0x5'])}"), {400}),
            (
                head(f"Content-Length: {'9' * rng.choice([7, 18, 19, 5000])}"),
                {400, 413},
            ),
            (head("Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n", {411}),
            (head("Transfer-Encoding: x", "Content-Length: 2") + b"{}", {411}),
            (head("Content-Length : 2") + b"{}", {400}),
            (head("A: b\r\n c: d"), {400}),
            (head("A: \0"), {400}),
        ]
    )
    return f"{raw[:60]!r}", _expecting(raw, statuses)


def bodies(rng: random.Random) -> Drawn:
    """Bodies that are no rows, or nearly none."""
    long = "a" * rng.choice([100_001, 900_000])
    whole = json.dumps(rows(rng)).encode()
    junk = bytes(rng.choices(range(128, 192), k=rng.randint(1, 300)))
    depth = rng.choice([*range(900, 1000, 7), 5000, 400_000])
    deep = b"[" * depth + b"]" * depth
    number = rng.choice([b"NaN", b"-Infinity", b"[1e999]", b"-1e999", b"1" * 9999])
    text = rng.choice([b"3", b"null", b'["a"]', b"{}", b'"\\ud800"'])
    body, statuses = rng.choice(
        [
            *((x, {400}) for x in (b"", b" ", b"null", b"3", b'"text"', b"true")),
            *(
                (x, {400})
                for x in (b"[[]]", b"[null]", b"{}", junk, b"text=a&text_b=b")
            ),
            *((x, {400, 503}) for x in (whole[:-1], whole + b"x", b"\0" * 1000)),
            (b'{"text": "a", "x": %s}' % number, {400}),
            (b'{"text": %s}' % text, {400}),
            (b'{"text": "a", "text_b": 3}', {400}),
            (b'{"text": "a", "x": %s}' % deep, {200, 400, 503}),
            (json.dumps({"text": long}).encode(), {400, 503}),
            (b"[" + b"{}," * 20_000 + b"{}]", {400, 503}),
            (b"[" + b'{"text": "a"},' * 20_000 + b"{}]", {400, 503}),
        ]
    )
    return f"{body[:60]!r}, {len(body)} bytes", _expecting(request(body), statuses)


def lengths(rng: random.Random) -> Drawn:
    """Another Content-Length than the body has."""
    body = json.dumps(row(rng)).encode()
    off = rng.choice([-5, -1, 1, 1000, 900_000])
    raw = head(f"Content-Length: {len(body) + off}") + body
    if off > 0:  # the rest never comes
        return f"{off} bytes too many", _expecting(raw, {CUT}, ends=True)
    return f"{-off} bytes too few", _expecting(raw, {400})


def right(rng: random.Random) -> Drawn:
    """Unusual, and right."""
    body = json.dumps(row(rng)).encode()
    more = rng.choice(
        [
            *("Origin: http://localhost", "X-Long: " + "y" * 9000, "Accept: \xe9"),
            *("Connection: keep-alive", "Content-Type: text/plain", "Cookie: a=b"),
        ]
    )
    raw = request(body, more)
    if rng.random() < 0.2:
        raw = request(b"\xef\xbb\xbf" + body)
    return more[:40], _expecting(raw, {200})


KINDS: dict[str, Callable[[random.Random], Drawn]] = {
    each.__name__.replace("_", " "): each
    for each in (
        *(stops, drips, never_reads, leaves, floods, hosts, origins, heads, bodies),
        *(lengths, right),
    )
}
