"""A process that has imported JAX and bert_jax, and becomes a program for each order.

Importing takes seconds, a run of a micro model takes one. No device has been used
before the fork, so JAX has no thread and no lock yet: the fork is as a program
that has just imported its libraries, and then runs as `python ARGUMENTS` does.

    python -m tests.fork_server SOCKET

SOCKET is the number of a socket. An order is a message in JSON with four files: a
socket, and the run's standard input, output and error. The socket gets the run's id,
then its status. When the other end of SOCKET closes, runs that still go are killed.
"""

import contextlib
import gc
import importlib
import json
import logging
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

import bert_jax
from bert_jax.runtime import signals
from tests import shared_cache

MAX_ORDER = 1 << 20  # bytes
# Each run executes the first as its program, which the second imports. The third is
# Apache Beam's.
NOT_IMPORTED = ("bert_jax.main", "bert_jax.api", "bert_jax.data.beam")
# These import one of them.
NOT_IMPORTED += ("bert_jax.estimator", "bert_jax.families.elmo.__main__")
NOT_IMPORTED += ("bert_jax.commands", "bert_jax.__main__")


def serve(orders: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Forks for each order.

    Returns the order and its streams in the forked process, and nothing in this one
    when the orders end.
    """
    running: dict[int, tuple[int, socket.socket]] = {}  # processes by their pidfd
    while True:
        for ready in select.select([orders.fileno(), *running], [], [])[0]:
            if ready != orders.fileno():
                process, news = running.pop(ready)
                os.close(ready)
                _, code = os.waitpid(process, 0)
                with news:
                    _tell(news, os.waitstatus_to_exitcode(code))
                continue
            message, files, _, _ = socket.recv_fds(orders, MAX_ORDER, 4)
            if not message:
                for process, _ in running.values():
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process, signal.SIGKILL)
                return None
            its_news, *streams = files
            process = os.fork()
            if process == 0:
                others = (news.detach() for _, news in running.values())
                for file in (orders.detach(), its_news, *running, *others):
                    os.close(file)
                return json.loads(message), streams
            for file in streams:
                os.close(file)
            news = socket.socket(fileno=its_news)
            running[os.pidfd_open(process)] = process, news
            _tell(news, process)


def become(order: Mapping[str, Any], streams: list[int]) -> list[str]:
    """Sets streams, folder and environment in the forked process.

    Returns its arguments.
    """
    with contextlib.suppress(ProcessLookupError):
        os.setpgid(0, 0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = _open(sys.stdin, "r")
    sys.stdout = _open(sys.stdout, "w")
    sys.stderr = _open(sys.stderr, "w", buffering=1)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    logging.root.handlers.clear()  # those that libraries added. main's comes first
    tempfile.tempdir = None
    np.random.seed()
    sys.orig_argv = [sys.executable, *order["argv"]]
    return order["argv"]


def _open(stream: TextIO, mode: str, buffering: int = -1) -> TextIO:
    """Opens a stream as Python does at its start: a stream knows whether it is a
    pipe."""
    own = {"encoding": stream.encoding, "errors": stream.errors, "closefd": False}
    return open(stream.fileno(), mode, buffering, **own)


def run(argv: list[str]) -> None:
    """Runs as `python -m MODULE ...` and `python -c TEXT ...` do."""
    kind, program, *arguments = argv
    if kind == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = [program, *arguments]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    assert kind == "-c", argv
    sys.path[0] = ""
    sys.argv = ["-c", *arguments]
    sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), vars(sys.modules["__main__"]))


def _tell(news: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        news.send(str(number).encode())


def _import() -> None:
    """Imports the modules of runs, which by themselves they import on use."""
    import grain
    import jax
    import optax
    import orbax.checkpoint
    import safetensors.numpy
    import scipy.stats
    import sentencex
    import tensorboardX
    from tensorflow_datasets.core import read_only_builder
    from tensorflow_datasets.core.download import download_manager, extractor
    from tensorflow_datasets.proto import tf_example_pb2

    del grain, jax, optax, orbax, safetensors, scipy, sentencex
    del tensorboardX, read_only_builder, download_manager, extractor, tf_example_pb2
    root = Path(bert_jax.__path__[0])
    for path in sorted(root.rglob("*.py")):
        name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        if not name.startswith(NOT_IMPORTED):
            importlib.import_module(name.removesuffix(".__init__"))
    shared_cache.write_whole()


if __name__ == "__main__":
    for its_number in signals.SIGNALS:  # the starting process may ignore some
        its_handler = (
            signal.default_int_handler
            if its_number == signal.SIGINT
            else signal.SIG_DFL
        )
        signal.signal(its_number, its_handler)
    _import()
    gc.collect()
    gc.freeze()  # no run scans the objects that all of them share
    gc.set_threshold(1_000_000, 20, 50)  # a short run leaves little garbage
    its_orders = socket.socket(fileno=int(sys.argv[1]))
    _tell(its_orders, os.getpid())
    if its_order := serve(its_orders):
        run(become(*its_order))
