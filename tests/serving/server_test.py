"""`--mode=serve` over HTTP, with a fake model."""

import contextlib
import importlib
import logging
import math
import sys
import threading
from unittest import mock

import pytest
from prometheus_client import parser

from bert_jax.serving import server
from tests.micro import error_line
from tests.served import asked, connected, head, received, request, serving

ROW = {"text": "a"}
HOLD = head("Content-Length: 1000") + b"four"


class Held:
    """Computes when it is let. `rows` has the computed rows."""

    def __init__(self):
        self.go, self.began, self.rows = threading.Event(), threading.Event(), []

    def __call__(self, rows):
        self.began.set()
        assert self.go.wait(60)
        self.rows += rows
        return [{}] * len(rows)


@pytest.fixture
def held():
    compute = Held()
    yield compute
    compute.go.set()


def test_row_rows_health_and_the_page():
    with serving(lambda rows: [{"label": row["text"] * 2} for row in rows]) as port:
        assert asked(port, request(ROW)) == (200, ROW | {"label": "aa"})
        texts = [str(number) for number in range(11)]  # more than a batch takes
        status, found = asked(port, request([{"text": text} for text in texts]))
        assert status == 200 and [row["label"] for row in found] == [
            2 * t for t in texts
        ]
        assert asked(port, request([])) == (200, [])
        assert asked(port, head(start="GET /health?x=1")) == (200, {"status": "ok"})
        assert asked(port, head(start="HEAD /health"))[0] == 200
        with connected(port) as client:
            client.sendall(head(start="GET /"))
            status, headers, page = received(client)
        assert (status, page) == (200, server.PAGE.read_bytes())
        assert headers["x-frame-options"] == "deny"


def test_request_that_is_too_large_is_refused():
    with serving() as port:
        too_large = request(b"a" * (server.MAX_BYTES + 1))
        assert asked(port, too_large) == (413, b"Content Too Large")


def counts(port):
    """Returns the answers by status, and every sample."""
    status, text = asked(port, head(start="GET /metrics"))
    assert status == 200
    families = parser.text_string_to_metric_families(text.decode())
    samples = [sample for family in families for sample in family.samples]
    answers = {s.labels["status"]: s.value for s in samples
               if s.name == "bert_requests_total"}  # fmt: skip
    return answers, {s.name: s.value for s in samples}


def test_metrics_count_answers_and_rows():
    with serving() as port:
        for raw in (request(ROW), request([ROW] * 3), request(b"{")):
            asked(port, raw)
        asked(port, head(start="GET /health"))
        answers, samples = counts(port)
    assert answers == {"200": 2, "400": 1}
    assert samples["bert_rows_total"] == 4 and samples["bert_queued_rows"] == 0
    assert samples["bert_request_seconds_count"] == 3 and samples["bert_cut_texts"] == 2
    assert 0 < samples["bert_request_seconds_sum"] < 60


def test_metrics_count_what_was_sent(held, monkeypatch):
    """Not answers to a client that has left, but those beyond the limit."""
    with serving(held) as port:
        with connected(port) as client:
            client.sendall(request(ROW))
            assert held.began.wait(60)
        with connected(port) as waiting:
            waiting.sendall(request(ROW))
            assert asked(port, head(start="GET /health"))[0] == 200
            monkeypatch.setattr(server, "MAX_CONNECTIONS", 1)
            said = {"error": "too many connections"}
            assert asked(port, request(ROW)) == (503, said)
            monkeypatch.undo()
            held.go.set()
            assert received(waiting)[0] == 200
        assert counts(port)[0] == {"200": 1, "503": 1}


def test_openapi_has_the_fields_of_a_row():
    about = {"model": "mine", "fields": ["context", "endings"]}
    about["example"] = {"context": "a", "endings": ["b", "c"]}
    document = server.openapi(about)
    row = document["components"]["schemas"]["row"]
    assert row["example"] == about["example"] and row["required"] == about["fields"]
    assert row["properties"]["endings"]["type"] == "array"
    with serving() as port:
        for path, methods in document["paths"].items():
            assert asked(port, head(start=f"GET {path}"))[0] in (200, 405)
            assert ("post" in methods) == (path == "/predict")


@pytest.mark.parametrize(
    ("raw", "status", "words"),
    [
        (head(start="GET /no"), 404, "Not Found"),
        (request(b"{"), 400, "not JSON"),
        (request(b'{"text": "\\ud800"}'), 400, "not JSON"),
        (request([ROW] * 20 + [{}]), 400, 'row 20: a string "text"'),
    ],
)
def test_request_that_is_wrong_is_refused_in_json(raw, status, words, caplog):
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
        ("mine.example", None, 200),
        ("evil.example", None, 421),
        ("localhost:8000", "http://localhost:8000", 200),
        ("localhost:8000", "https://bert.example", 200),
        ("localhost:8000", "http://evil.example", 403),
        ("localhost:8000", "http://bert.example.evil.example", 403),
    ],
)
def test_page_of_another_site_is_refused(server_of_names, host, origin, status):
    body = b'{"text": "a"}'
    headers = [f"Content-Length: {len(body)}", *([f"Origin: {origin}"] * bool(origin))]
    raw = head(*headers, host=host) + body
    assert asked(server_of_names, raw)[0] == status


@pytest.fixture(scope="module")
def server_of_names():
    application = server.make_application

    def named(batcher, about, host, *hosts):
        return application(batcher, about, "Mine.example", "Bert.example")

    with mock.patch.object(server, "make_application", named), serving() as port:
        yield port


def test_failure_is_an_answer_too(caplog):
    def compute(rows):
        raise RuntimeError("RESOURCE_EXHAUSTED")

    with serving(compute) as port:
        failed = (500, {"error": "RuntimeError: RESOURCE_EXHAUSTED"})
        assert asked(port, request(ROW)) == failed
    assert "Traceback" in caplog.text  # to find the cause


def test_nan_is_no_answer():
    with serving(lambda rows: [{"score": math.nan}] * len(rows)) as port:
        status, said = asked(port, request(ROW))
    assert status == 500 and "JSON compliant" in said["error"]


def test_end_answers_what_has_arrived(held):
    with contextlib.ExitStack() as clients:
        with serving(held, grace=60.0) as port:
            client = clients.enter_context(connected(port))
            client.sendall(request(ROW).replace(b"close", b"keep-alive"))
            assert held.began.wait(60)
            threading.Timer(0.5, held.go.set).start()
        status, headers, answer = received(client)
        assert (status, answer) == (200, ROW)
        assert headers["connection"] == "close"  # else its next request would be lost


def test_end_comes_within_its_grace_whatever_clients_hold(held, caplog):
    """`serving` waits for it."""
    with contextlib.ExitStack() as clients:
        with serving(held, grace=0.5) as port:
            some = [clients.enter_context(connected(port)) for _ in range(5)]
            some[1].sendall(b"POST /pre")
            some[2].sendall(HOLD)
            some[3].sendall(request(ROW))  # is never computed
            some[4].sendall(request(ROW).replace(b"close", b"keep-alive"))
            assert held.began.wait(60)
        status, _, said = received(some[3])
        assert (status, said) == (503, {"error": "not answered: the server ends"})
    assert not [r for r in caplog.records if r.levelno > logging.INFO]


def test_serve_without_its_packages_says_how_to_install_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "bert_jax.serving.server")
    line = error_line(importlib.import_module, "bert_jax.serving.server")
    assert "needs starlette and uvicorn: pip install" in line
