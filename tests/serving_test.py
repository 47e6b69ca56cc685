"""`--mode=serve`: rows over HTTP, and the page in a browser."""

import asyncio
import concurrent.futures
import json
import threading
import time
import urllib.error
import urllib.request
from unittest import mock

import pytest
from ml_collections import ConfigDict
from runs import finish, free_port, here, start, wait_until

from bert_jax.serving import server
from bert_jax.serving.batching import Batcher
from bert_jax.tasks.task import Predictor, Task


@pytest.fixture(autouse=True)
def needs_its_server():
    pytest.importorskip("uvicorn", reason="needs the serve extra")


def test_rows_that_wait_are_computed_together():
    sizes, go = [], threading.Event()

    def compute(rows):
        go.wait(10)
        sizes.append(len(rows))
        return [{"double": 2 * row} for row in rows]

    batcher = Batcher(compute, 4)
    futures = [batcher.submit(0)]
    time.sleep(0.2)  # the first is being computed
    futures += [batcher.submit(row) for row in range(1, 8)]
    gone = batcher.submit(99)
    gone.cancel()
    go.set()
    assert [f.result(10)["double"] for f in futures] == [2 * row for row in range(8)]
    batcher.close()
    assert sizes[:3] == [1, 4, 3]


def test_an_error_reaches_who_asked_and_the_next_are_answered():
    def compute(rows):
        if rows == ["bad"]:
            raise RuntimeError("broken")
        return [{} for _ in rows]

    batcher = Batcher(compute, 1)
    with pytest.raises(RuntimeError, match="broken"):
        batcher.submit("bad").result(10)
    assert batcher.submit("good").result(10) == {}
    batcher.close()


def test_a_failure_is_an_answer_too():
    task = mock.create_autospec(Task, instance=True)
    task.config = ConfigDict({"task": {"name": "pretraining"}})
    predictor = mock.create_autospec(Predictor, instance=True)

    def compute(rows):
        raise RuntimeError("RESOURCE_EXHAUSTED")

    batcher = Batcher(compute, 4)
    served = server.app(task, predictor, batcher)
    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": []}
    sent = []

    async def receive():
        return {"type": "http.request", "body": b'{"text": "a"}'}

    async def send(message):
        sent.append(message)

    with pytest.raises(RuntimeError):  # for the server's log
        asyncio.run(served(scope, receive, send))
    batcher.close()
    assert sent[0]["status"] == 500
    assert json.loads(sent[1]["body"]) == {"error": "RuntimeError: RESOURCE_EXHAUSTED"}


@pytest.fixture
def served(plain):
    """A served run's address."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    process = start("--mode=serve", f"--workdir={plain}", f"--port={port}")

    def answers():
        try:
            return ask(f"{address}/health")["status"] == "ok"
        except urllib.error.URLError:
            return False

    wait_until(answers, process)
    yield address
    process.send_signal(15)
    finish(process, 143)


def ask(address, body=None):
    """The answer's JSON, of an error too."""
    try:
        with urllib.request.urlopen(address, data=body, timeout=60) as found:
            return json.load(found)
    except urllib.error.HTTPError as error:
        return {"status": error.code, **json.load(error)}


@pytest.mark.heart
def test_answers_are_those_of_predict(served, plain, tmp_path):
    rows = [{"text": f"the {'quick ' * n}[MASK] fox", "id": n} for n in range(9)]
    rows.append({"text": "a [MASK]", "text_b": "seven cats"})
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out, _ = here(f"--workdir={plain}", "--mode=predict", f"--input={source}")
    expected = [json.loads(line) for line in out.splitlines()]

    def plainly(answer):
        return [[guess["token"] for guess in guesses] for guesses in answer["masks"]]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        single = pool.map(
            lambda row: ask(f"{served}/predict", json.dumps(row).encode()), rows
        )
        for found in (
            list(single),
            ask(f"{served}/predict", json.dumps(rows).encode()),
        ):
            assert [row["text"] for row in found] == [row["text"] for row in rows]
            assert list(map(plainly, found)) == list(map(plainly, expected))
            assert found[-1]["is_next_probability"] == pytest.approx(
                expected[-1]["is_next_probability"], rel=1e-4
            )
    for body, words in (
        (b"{", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b"3", "row 0: a JSON object"),
        (b'[{"text": "a"}, {}]', "row 1: "),
    ):
        said = ask(f"{served}/predict", body)
        assert said["status"] == 400 and words in said["error"]


def test_a_port_that_is_taken_is_one_line(served, plain):
    port = served.rpartition(":")[2]
    _, error = here("--mode=serve", f"--workdir={plain}", f"--port={port}", status=2)
    assert error.splitlines()[-1].startswith(f"error: --port={port}: ")
