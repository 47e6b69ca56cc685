"""Requests and answers of HTTP/1.1, as bytes."""

import http
import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

MOST_BYTES = 1_000_000  # of a request's body
HEAD_BYTES = 16_384  # of its first line and headers
# Seconds, of the whole of each.
HEAD_SECONDS, BODY_SECONDS, SEND_SECONDS = 10.0, 30.0, 30.0
_ONCE = ("host", "origin", "content-length", "transfer-encoding", "expect")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\0\r\n]*?)[ \t]*")
_START = re.compile(r"([A-Z]+) (/[!-~]*) HTTP/1\.[01]")


class Head(NamedTuple):
    """A request's first line and headers, the names of these in lower case."""

    method: str
    path: str  # without what follows a question mark
    headers: Mapping[str, str]


class Answer(NamedTuple):
    """What a client gets."""

    status: int
    body: str
    kind: str = "application/json"
    headers: Sequence[str] = ()


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, text: str, *headers: str):
        super().__init__(text)
        self.answer = Answer(status, json.dumps({"error": text}), headers=headers)


def head_of(raw: bytes) -> Head:
    """Parses a request up to the blank line before its body.

    Raises:
      Refused: it is not HTTP/1.1 as it should be.
    """
    start, *lines = raw.decode("latin-1").split("\r\n")
    first = _START.fullmatch(start)
    if not first:
        raise Refused(400, "not a request of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if not header:
            raise Refused(400, f"not a header: {line[:100]}")
        name = header[1].lower()
        if name in headers and name in _ONCE:
            raise Refused(400, f"more than one {header[1]}")
        headers[name] = header[2]
    return Head(first[1], first[2].partition("?")[0], headers)


def body_bytes(head: Head) -> int:
    """The length of the body; 0: there is none.

    Raises:
      Refused: it is not said, or too large.
    """
    if "transfer-encoding" in head.headers:
        raise Refused(411, "no chunks: Content-Length is required")
    stated = head.headers.get("content-length", "0")
    if not re.fullmatch("[0-9]{1,18}", stated):
        raise Refused(400, f"Content-Length: {stated[:100]}")
    if int(stated) > MOST_BYTES:
        raise Refused(413, f"more than {MOST_BYTES:,} bytes; send less at once")
    return int(stated)


def sent(answer: Answer, *, with_body: bool = True) -> bytes:
    """An answer as it is sent."""
    body = answer.body.encode("utf-8")
    lines = [
        f"HTTP/1.1 {answer.status} {http.HTTPStatus(answer.status).phrase}",
        f"Content-Type: {answer.kind}; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "X-Content-Type-Options: nosniff",
        *answer.headers,
    ]
    head = "".join(f"{line}\r\n" for line in lines) + "\r\n"
    return head.encode("ascii") + (body if with_body else b"")
