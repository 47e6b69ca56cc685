"""A process that has imported JAX and bert_jax, and becomes a program for each order.

Importing takes seconds, a run of a micro model takes one. No device has been used
before the fork, so JAX has no thread and no lock yet: the fork is as a program
that has just imported its libraries, and then runs as `python ARGUMENTS` does.

    python -m tests.fork_server SOCKET

SOCKET is the number of a socket. An order is a message with a number for the run and
four files: the order as JSON, and the run's standard input, output and error. News goes
back, a JSON object a message. When the other end closes, runs that still go are killed.
"""

import contextlib
import gc
import importlib
import json
import logging
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import tempfile
import types
from typing import TextIO

import numpy as np

import bert_jax
from bert_jax.runtime import signals
from tests import shared_cache

ORDER_FILES = 4
# Each run executes the first as its program, which the second imports. The third is
# Apache Beam's.
NOT_IMPORTED = ("bert_jax.main", "bert_jax.api", "bert_jax.data.beam")


def serve(orders: socket.socket) -> list[int]:
    """Forks for each order.

    Returns its files in the forked process, and nothing in this one when the orders
    end.
    """
    running: dict[int, tuple[int, int]] = {}  # by pidfd: process, number of the run
    while True:
        for ready in select.select([orders.fileno(), *running], [], [])[0]:
            if ready != orders.fileno():
                process, number = running.pop(ready)
                os.close(ready)
                _, code, used = os.wait4(process, 0)
                status = os.waitstatus_to_exitcode(code)
                seconds = used.ru_utime + used.ru_stime
                _tell(orders, {"number": number, "status": status, "seconds": seconds})
                continue
            message, files, _, _ = socket.recv_fds(orders, 100, ORDER_FILES)
            if not message:
                for process, _ in running.values():
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process, signal.SIGKILL)
                return []
            process = os.fork()
            if process == 0:
                for file in (orders.detach(), *running):
                    os.close(file)
                return files
            for file in files:
                os.close(file)
            running[os.pidfd_open(process)] = process, int(message)
            _tell(orders, {"number": int(message), "pid": process})


def become(files: list[int]) -> list[str]:
    """Sets streams, folder and environment in the forked process.

    Returns its arguments.
    """
    with contextlib.suppress(ProcessLookupError):
        os.setpgid(0, 0)
    with os.fdopen(files[0], encoding="utf-8") as file:
        order = json.load(file)
    for number, stream in enumerate(files[1:]):
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


def _tell(orders: socket.socket, news: dict) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        orders.send(json.dumps(news).encode())


def _import() -> None:
    """Imports the modules of runs, which by themselves they import on use."""
    import array_record.python.array_record_module
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

    del array_record, grain, jax, optax, orbax, safetensors, scipy, sentencex
    del tensorboardX, read_only_builder, download_manager, extractor, tf_example_pb2
    for module in pkgutil.walk_packages(bert_jax.__path__, "bert_jax."):
        if module.name not in NOT_IMPORTED:
            importlib.import_module(module.name)
    for name in os.environ.get("ALSO_IMPORT", "").split():
        with contextlib.suppress(ImportError):  # from an extra
            importlib.import_module(name)
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
    its_orders = socket.socket(fileno=int(sys.argv[1]))
    _tell(its_orders, {"number": -1, "pid": os.getpid()})
    if its_files := serve(its_orders):
        run(become(its_files))
