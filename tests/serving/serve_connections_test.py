"""Clients of `--mode=serve` that do what none should, against a server without a
model."""

import asyncio
import contextlib
import gc
import json
import logging
import socket
import threading
import time
from unittest import mock

import pytest
from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.serving import connections, server
from bert_jax.serving.batching import Batcher
from bert_jax.tasks.task import Task
from tests.served import asked, connected, head, received, request, serving

ROW = {"text": "a"}
HOLD = head("Content-Length: 1000") + b"four"


@pytest.fixture
def slow():
    """What computes only when it is let, and what it has computed."""
    go, seen = threading.Event(), []

    def compute(rows):
        assert go.wait(20)
        seen.extend(rows)
        return ["1"] * len(rows)

    compute.go, compute.seen = go, seen
    yield compute
    go.set()


def test_a_row_and_rows():
    with serving() as port:
        assert asked(port, request(ROW)) == (200, ROW)
        assert asked(port, request([ROW, ROW])) == (200, [ROW, ROW])
        assert asked(port, request([])) == (200, [])
        about = {"status": "ok", "task": "ner", "fields": ["text"]}
        assert asked(port, head(start="GET /health?x=1")) == (200, about)
        status, page = asked(port, head(start="GET /"))
        assert status == 200 and page == server.PAGE.read_bytes()
        assert gc.get_threshold()[0] >= server.MOST_ROWS  # rows of one request: no look


@pytest.mark.parametrize(
    ("raw", "status", "words"),
    [
        (b"\r\n\r\n", 400, "not a request"),
        (b"\x16\x03\x01\r\n\r\n", 400, "not a request"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "one Host"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n", 400, "more than one"),
        (b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400, "not a header"),
        (head("X: y\r\n z"), 400, "not a header"),
        (head(start="GET /no"), 404, "/no"),
        (head(start="PUT /predict"), 405, "takes POST"),
        (head("Content-Length: -1"), 400, "Content-Length: -1"),
        (head("Content-Length: 1", "Content-Length: 2"), 400, "more than one"),
        (head("Content-Length: 1000001"), 413, "1,000,000 bytes"),
        (head("Transfer-Encoding: chunked"), 411, "Content-Length is required"),
        (head("X: " + "y" * 20_000), 431, "headers"),
        (request(b""), 400, "not JSON"),
        (request(b"{"), 400, "not JSON"),
        (request(b"\xff"), 400, "not JSON"),
        (request(b"[" * 100_000), 400, "not JSON"),
        (request(b"1" * 10_000), 400, "not JSON"),
        (request(b'{"text": "\\ud800"}'), 400, "surrogate"),
        (request(b'{"x": NaN}'), 400, "row 0: NaN"),
        (request(b'[{}, {"x": [1e999]}]'), 400, "row 1: NaN"),
        (request(b"[" + b"{}," * 10_000 + b"{}]"), 400, "10,001 rows"),
        (request({"text": "a" * 200_000}), 400, "row 0: 200,0"),
    ],
)
def test_what_is_no_request_is_refused(raw, status, words, caplog):
    with serving() as port:
        found, said = asked(port, raw)
        assert found == status and words in said["error"]
        assert asked(port, request(ROW)) == (200, ROW)
    assert not [r for r in caplog.records if r.levelno > logging.INFO]


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:80", None, 200),
        ("LOCALHOST.:8000", None, 200),
        ("evil.example", None, 421),
        ("localhost.evil.example", None, 421),
        ("127.0.0.2", None, 421),
        ("user@localhost", None, 400),
        ("", None, 400),
        ("bert.example", None, 200),
        ("localhost:8000", "http://localhost:8000", 200),
        ("localhost:8000", "http://localhost:3000", 403),
        ("localhost:8000", "http://evil", 403),
        ("localhost:8000", "null", 403),
        ("localhost", "file://localhost", 403),
        ("localhost:8000", "https://bert.example", 200),
        ("evil.example", "http://evil.example", 421),
    ],
)
def test_whom_a_request_means_and_which_page_sends_it(host, origin, status):
    more = [f"Origin: {origin}"] if origin else []
    with serving(hosts=["Bert.example"]) as port:
        assert asked(port, request(ROW, *more, host=host))[0] == status


@pytest.mark.parametrize(
    ("host", "by", "name"),
    [
        ("::1", "::1", "[::1]:80"),
        ("::", "::1", "localhost"),
        ("::", "127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1", "localhost"),
    ],
)
def test_other_addresses(host, by, name):
    with contextlib.closing(socket.socket(socket.AF_INET6)) as tried:
        try:
            tried.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
    with serving(host=host) as port:
        assert asked(port, request(ROW, host=name), by) == (200, ROW)
        assert asked(port, request(ROW, host="evil.example"), by)[0] == 421


@pytest.mark.parametrize("host", ["", "no such name", "192.0.2.1", "a" * 300])
def test_an_address_that_is_not_here_is_one_line(host):
    with pytest.raises(UserError, match=r"^--(host|port)=.*; name "):
        server.bound(host, 0)


def test_who_has_gone_is_not_computed(slow):
    with serving(slow) as port:
        first = connected(port)
        first.sendall(request({"first": 1}))
        for _ in range(20):
            with connected(port) as client:
                client.sendall(request([ROW] * 2000))
        time.sleep(0.3)
        slow.go.set()
        start = time.monotonic()
        assert asked(port, request({"last": 1})) == (200, 1)
        assert time.monotonic() - start < 1
        assert received(first)[0] == 200
    assert len(slow.seen) < 100


def test_only_a_whole_request_that_is_right_is_worked_on(monkeypatch):
    bodies, answered = [], connections._answered
    monkeypatch.setattr(
        connections, "_answered", lambda *of: bodies.append(of[1]) or answered(*of)
    )
    with serving() as port:
        for raw in (HOLD, b"POST", request(ROW, host="evil"), head(start="GET /no")):
            with connected(port) as client:
                client.sendall(raw)
                client.shutdown(socket.SHUT_WR)
                received(client)
        assert asked(port, request(ROW)) == (200, ROW)
    assert bodies == [json.dumps(ROW).encode()]


def test_who_sends_much_beyond_a_request_is_cut(slow):
    with serving(slow) as port:
        assert asked(port, request(ROW) + b"x" * 100_000)[0] == 0
        slow.go.set()
        with connected(port) as client:
            client.sendall(request(ROW))
            client.sendall(b"\r\n")  # as some clients do
            assert received(client)[0] == 200


def test_a_request_in_parts():
    raw = request(ROW, "Expect: 100-continue")
    body = raw.index(b"{")
    with serving() as port, connected(port) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(body):
            client.sendall(raw[at : at + 1])
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(raw[body:])
        assert received(client)[::2] == (200, ROW)


def test_so_many_large_requests_at_a_time(slow, monkeypatch):
    monkeypatch.setattr(server, "MOST_LARGE", 2)
    large = request({"text": "a" * 70_000})
    with serving(slow) as port:
        held = [connected(port) for _ in range(2)]
        for client in held:
            client.sendall(large)
        time.sleep(0.2)
        with connected(port) as client:
            client.sendall(large)
            status, headers, said = received(client)
        assert (status, headers["Retry-After"]) == (503, "5")
        assert said["error"].startswith("2 large requests")
        slow.go.set()
        assert asked(port, request(ROW)) == (200, 1)
        assert all(received(client)[0] == 200 for client in held)
        assert asked(port, large) == (200, 1)


def test_a_request_takes_so_long(slow):
    with serving(slow, seconds=0.2) as port:
        status, said = asked(port, request(ROW))
        assert status == 503 and "0.2 s" in said["error"]


@pytest.mark.parametrize("part", [b"", b"POST /pre", HOLD])
def test_headers_and_bodies_take_so_long(part, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.2)
    with serving() as port:
        assert asked(port, part)[0] == 408


def test_who_does_not_read_is_cut(monkeypatch):
    monkeypatch.setattr(connections, "SEND_SECONDS", 0.3)
    with serving(lambda rows: ['"' + "a" * 8_000_000 + '"'] * len(rows)) as port:
        client = connected(port, buffer=2000)
        client.sendall(request(ROW))
        time.sleep(1)
        got = 0
        with contextlib.suppress(ConnectionError):
            while part := client.recv(1 << 16):
                got += len(part)
        assert got < 8_000_000


def test_who_takes_long_to_ask_makes_room(monkeypatch):
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    with serving() as port:
        held = [connected(port) for _ in range(30)]
        for client in held:
            client.sendall(HOLD)
        assert asked(port, request(ROW)) == (200, ROW)
        assert received(held[0])[0] == 0


def test_a_client_that_closes_says_nothing(caplog, capfd):
    with serving() as port:
        for part in (b"", b"POST", HOLD, request([ROW] * 100)):
            for how in (b"\0" * 8, b"\1\0\0\0" + b"\0" * 4):  # the latter: a reset
                with connected(port) as client:
                    client.sendall(part)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, how)
        assert asked(port, request(ROW)) == (200, ROW)
    assert not [r for r in caplog.records if r.levelno > logging.INFO]
    assert capfd.readouterr().err == ""


def test_a_failure_is_an_answer_too(caplog):
    def compute(rows):
        raise RuntimeError("RESOURCE_EXHAUSTED")

    with serving(compute) as port:
        failed = (500, {"error": "RuntimeError: RESOURCE_EXHAUSTED"})
        assert asked(port, request(ROW)) == failed
    assert "RESOURCE_EXHAUSTED" in caplog.text  # with its traceback, to find the cause


def test_the_end_answers_what_has_arrived_and_cuts_the_rest(slow):
    with serving(slow, grace=10.0) as port:
        held, silent, works = (connected(port) for _ in range(3))
        held.sendall(HOLD)
        works.sendall(request(ROW))
        time.sleep(0.2)
        threading.Timer(1.0, slow.go.set).start()
        start = time.monotonic()
    assert 0.5 < time.monotonic() - start < 5
    assert received(works)[::2] == (200, 1)
    assert received(held)[0] == received(silent)[0] == 0


def test_the_end_waits_no_longer_than_its_grace():
    answer = '"' + "a" * 8_000_000 + '"'
    with serving(lambda rows: [answer] * len(rows), grace=0.5) as port:
        client = connected(port, buffer=2000)
        client.sendall(request(ROW))  # and never reads
        time.sleep(0.3)
        start = time.monotonic()
    assert time.monotonic() - start < 3


@pytest.mark.parametrize(
    ("name", "pairs", "fields"),
    [
        ("text", False, ["text"]),
        ("mrpc", True, ["text", "text_b"]),
        ("squad", None, ["question", "context"]),
        ("my own", None, ["text", "text_b"]),
    ],
)
def test_the_page_has_the_boxes_that_the_task_reads(name, pairs, fields):
    task = mock.create_autospec(Task, instance=True)
    task.config = ConfigDict({"task": {"name": name}})
    if pairs is not None:
        task.pairs = pairs
    service = server.Service(task, mock.create_autospec(Batcher, instance=True), 1.0)
    answer = asyncio.run(service.health(b""))
    assert json.loads(answer.body)["fields"] == fields
