"""`--mode=serve`, the program: answers of a run, and its end."""

import concurrent.futures
import json
import signal
import socket

import pytest

from bert_jax.training import inference
from tests import runs
from tests.micro import write_rows
from tests.runs import ask, finish, here

pytestmark = pytest.mark.usefixtures("one_device")


def test_answers_are_those_of_predict(plain, tmp_path):
    rows = [{"text": f"the {'quick ' * n}[MASK] fox", "id": n} for n in range(9)]
    rows.append({"text": "a [MASK]", "text_b": "seven cats"})
    source = write_rows(tmp_path / "rows.jsonl", rows)
    out, _ = here(f"--workdir={plain}", "--mode=predict", f"--input={source}")
    expected = [json.loads(line) for line in out.splitlines()]

    def plainly(answer):
        return [[guess["token"] for guess in guesses] for guesses in answer["masks"]]

    with runs.served(plain) as (served, process):

        def of(row):
            return ask(f"{served}/predict", json.dumps(row).encode())

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            single = list(pool.map(of, rows))
        for found in (single, of(rows)):
            assert [row["text"] for row in found] == [row["text"] for row in rows]
            assert list(map(plainly, found)) == list(map(plainly, expected))
            assert found[-1]["is_next_probability"] == pytest.approx(
                expected[-1]["is_next_probability"], rel=1e-4
            )
        assert ask(f"{served}/predict", b'[{"text": "a"}, {}]')["status"] == 400
        about = ask(f"{served}/health")
        assert about["labels"] == [] and about["fields"] == ["text", "text_b"]
        (first, *_) = (plain / "predictions" / "dev.jsonl").open()
        assert about["example"]["text"] == json.loads(first)["text"]
        count = about["example"]["text"].count("[MASK]")
        assert len(of(about["example"])["masks"]) == count > 0
        described = ask(f"{served}/openapi.json")
        assert described["info"]["title"] == about["model"] == plain.name
        process.send_signal(signal.SIGTERM)
        finish(process, 143)


def test_port_that_is_taken_is_one_line_before_the_model_loads(plain, monkeypatch):
    monkeypatch.setattr(inference, "restore_answerer", None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ("--mode=serve", f"--workdir={plain}", f"--port={port}")
        _, error = here(*arguments, status=2)
    assert error.splitlines()[-1].startswith(f"error: --port={port}: ")
