"""`--mode=serve`: rows over HTTP, and the page in a browser."""

import concurrent.futures
import functools
import json
import logging
import socket
import time

import pytest
import runs
from runs import ask, finish, here

from bert_jax import answering
from bert_jax.errors import UserError
from bert_jax.serving import server
from tests.served import asked, connected, head, request, serving


@pytest.fixture
def served(plain):
    """A served run's address."""
    with (
        runs.served(plain) as (address, process),
        connected(int(address.rpartition(":")[2])) as client,
    ):
        client.sendall(head("Content-Length: 1000") + b"four")  # and never the rest
        yield address
        stopped = time.monotonic()
        process.send_signal(15)
        finish(process, 143)
    assert time.monotonic() - stopped < 5


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
        (b"\xff", "not JSON ('utf-8'"),
        (b"3", "row 0: a JSON object"),
        (b'[{"text": "a"}, {}]', "row 1: "),
    ):
        said = ask(f"{served}/predict", body)
        assert said["status"] == 400 and words in said["error"]


def test_a_port_that_is_taken_is_one_line_before_the_model_loads(plain, monkeypatch):
    monkeypatch.setattr(answering, "of_task", None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ("--mode=serve", f"--workdir={plain}", f"--port={port}")
        _, error = here(*arguments, status=2)
    assert error.splitlines()[-1].startswith(f"error: --port={port}: ")


def test_a_model_that_fails_is_no_fault_of_the_client(caplog):
    def answer(rows):
        raise UserError("the model computes NaN or infinity")

    compute = functools.partial(server.computed, answer)
    with serving(compute, parse=lambda row: (row, row)) as port:
        status, said = asked(port, request({"text": "a"}))
    assert (status, said) == (500, {"error": "the model computes NaN or infinity"})
    (line,) = [r.message for r in caplog.records if r.levelno > logging.INFO]
    assert line == said["error"]
