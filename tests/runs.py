"""Runs of the program: here or in processes, waited for, killed and read."""

import contextlib
import io
import json
import logging
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax import main
from bert_jax.workdir import metrics
from bert_jax.workdir.checkpoint import Checkpoints

ROOT = Path(__file__).resolve().parents[1]
MAIN = ("-m", "bert_jax.main")
MESH = ("--config.mesh.data=2", "--config.mesh.fsdp=2", "--config.mesh.tensor=2")
ZERO1 = ("--config.mesh.optimizer=zero1",)
LIMIT = 600  # seconds after which a process hangs, however busy the machine is


def here(*arguments, status: int = 0, program: Any = None) -> tuple[str, str]:
    """Runs main in this process, and returns (stdout, stderr).

    It is on eight devices if an argument names the mesh, else on one. `program` is as
    in main.
    """
    out, err = io.StringIO(), io.StringIO()
    whole = any("config.mesh." in str(argument) for argument in arguments)
    handler = logging.StreamHandler(err)  # pytest has the root's
    logging.getLogger("bert_jax").addHandler(handler)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            contextlib.nullcontext() if whole else one_device(),
        ):
            given = main.main([str(argument) for argument in arguments], program)
    finally:
        logging.getLogger("bert_jax").removeHandler(handler)
    assert given == status, err.getvalue()
    return out.getvalue(), err.getvalue()


@contextlib.contextmanager
def one_device() -> Iterator[None]:
    """Lets runs in this process see one device.

    Compiling for eight takes three times as long.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "devices", lambda *_: jax.local_devices()[:1])
        yield


def run(config, workdir, *arguments, status: int = 0) -> tuple[str, str]:
    """Runs as `here` does, with a config in a work directory."""
    return here(f"--config={config}", f"--workdir={workdir}", *arguments, status=status)


def refused(*arguments, program: Any = None) -> str:
    """Returns the one line of a run in this process that ends with status 2."""
    _, error = here(*arguments, status=2, program=program)
    assert error.count("\n") == 1, error
    return error


def saved(workdir: Path, step: int, *names: str) -> dict[str, Any]:
    """Returns these trees of a checkpoint, on one device."""
    where = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    with Checkpoints(workdir, None, only=step) as checkpoints:
        trees, _ = checkpoints.restore(dict.fromkeys(names, where))
    return trees


def taken(path: Path) -> list[str]:
    """Returns the lines of a file, none without a file. The file is removed."""
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


def environment(devices: int = 1, **variables: str) -> dict[str, str]:
    """Returns this environment, for a process with `devices` simulated devices."""
    flags = os.environ["XLA_FLAGS"].replace("count=8", f"count={devices}")
    paths = [str(ROOT / "tests" / "without_torch"), os.environ.get("PYTHONPATH", "")]
    own = {"XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return {**os.environ, **own, **variables}


class Process(subprocess.Popen):
    """A program with text streams, killed with the processes that it has started."""

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


def start(
    *arguments: str,
    devices: int = 1,
    program: Sequence[str] = MAIN,
    stdin: int = subprocess.DEVNULL,
    **variables: str,
) -> Process:
    """Starts main, or a program like it, in a separate process."""
    return Process(
        [sys.executable, *program, *arguments],
        cwd=ROOT,
        env=environment(devices, **variables),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def start_together(
    number: int, *arguments: str, devices: int = 1, heartbeat: int = 200, **more
) -> list[Process]:
    """Starts several processes as one run, nobody looking after them.

    Args:
      heartbeat: Seconds without a sign of life after which JAX gives a process up.
        Long, because a busy machine may halt a process for a while.
    """
    return [
        start(
            *arguments,
            devices=devices,
            BERT_JAX_COORDINATOR=address,
            BERT_JAX_PROCESSES=str(number),
            BERT_JAX_PROCESS_ID=str(index),
            BERT_JAX_HEARTBEAT=str(heartbeat),
            **more,
        )
        for address in [f"127.0.0.1:{free_port()}"]
        for index in range(number)
    ]


def finish(process: subprocess.Popen, status: int = 0) -> tuple[str, str]:
    """Waits for its end and returns (stdout, stderr)."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == status, err
    return out, err


def finish_all(processes: Iterable[Process]) -> list[tuple[int, str, str]]:
    """Waits for their ends and returns (status, stdout, stderr) of each."""
    ended = [(process, process.communicate(timeout=LIMIT)) for process in processes]
    return [(process.returncode, *both) for process, both in ended]


@contextlib.contextmanager
def no_room(most: int = 0) -> Iterator[None]:
    """Lets no file grow beyond so many bytes, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def kill(process: Process) -> None:
    process.kill()
    process.communicate()


def write_pairs(folder: Path, one: str, two: str) -> None:
    """Writes train.jsonl and dev.jsonl: pairs whose last words show their label."""
    words = ["the", "quick", "brown", "jumps", "over", "a", "dog", "while", "go"]
    rng = random.Random(0)
    for name, count in (("train", 160), ("dev", 37)):
        rows = []
        for _ in range(count):
            label = rng.choice(["one", "two"])
            first, second = (" ".join(rng.choices(words, k=4)) for _ in range(2))
            second += f" {one if label == 'one' else two}"
            rows.append({"text": first, "text_b": second, "label": label})
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines)


def wait_for_lines(workdir: Path, count: int, *processes: Process) -> None:
    """Waits until a run's log has at least `count` lines."""
    path = workdir / "metrics.jsonl"
    wait_until(lambda: path.exists() and path.read_text().count("\n") >= count,
               *processes)  # fmt: skip


def wait_until(condition, *processes: Process) -> None:
    """Waits for something that processes do, as long as they run."""
    end = time.monotonic() + LIMIT
    while not condition():
        gone = [process for process in processes if process.poll() is not None]
        assert not gone, finish_all(gone)
        assert time.monotonic() < end
        time.sleep(0.005)


@contextlib.contextmanager
def served(workdir: Path, *flags: str) -> Iterator[tuple[str, Process]]:
    """Yields the address of a run's service, which answers, and its process."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    line = ("--mode=serve", f"--workdir={workdir}", f"--port={port}")
    process = start(*line, *flags)

    def answers() -> bool:
        try:
            return ask(f"{address}/health")["status"] == "ok"
        except urllib.error.URLError:
            return False

    wait_until(answers, process)
    yield address, process


def ask(address: str, body: bytes | None = None) -> Any:
    """Returns the answer's JSON, for an error too."""
    try:
        with urllib.request.urlopen(address, data=body, timeout=LIMIT) as found:
            return json.load(found)
    except urllib.error.HTTPError as error:
        return {"status": error.code, **json.load(error)}


def losses(workdir: Path) -> np.ndarray:
    """Reads the loss of each step, all of them there once and in order."""
    lines = metrics.read_metrics(Path(workdir), "train")
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    return np.array([line["loss"] for line in lines])


def free_port() -> int:
    """Returns a port that no connection takes by itself: those begin at 32768."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as listening, contextlib.suppress(OSError):
            listening.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def one_device_each(monkeypatch):
    """Processes that this one starts have one simulated device."""
    monkeypatch.setenv("XLA_FLAGS", environment()["XLA_FLAGS"])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
