"""A process that has imported JAX and bert_jax, and becomes a run for each order.

Importing takes seconds, a run of a micro model takes one. No device has been asked for
before the fork, so JAX has no thread and no lock yet: what forks here is as a program
that has just been imported, and goes on as `python -m bert_jax.main` does.

    python -m tests.system.server READ WRITE

READ and WRITE are descriptors: orders come in and news go out, a JSON object a line.
"""

import contextlib
import gc
import json
import logging
import os
import select
import signal
import sys
import tempfile
from typing import Any

from bert_jax.runtime import environment, signals


def serve(source: int, sink: int) -> dict[str, Any] | None:
    """Forks for each order; gives the order in a forked process, else None."""
    numbers: dict[int, int] = {}  # by process
    rest = b""
    is_open = True
    while is_open or numbers:
        ready = select.select([source] if is_open else [], [], [], 0.005)[0]
        if ready:
            read = os.read(source, 1 << 20)
            is_open = bool(read)
            *lines, rest = (rest + read).split(b"\n")
            for order in map(json.loads, lines):
                process = os.fork()
                if process == 0:
                    os.close(source)
                    os.close(sink)
                    return order
                numbers[process] = order["number"]
                _tell(sink, {"number": order["number"], "pid": process})
        for process in list(numbers):
            if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                # Told before the number can be given to another process.
                _, code, used = os.wait4(process, 0)
                status = os.waitstatus_to_exitcode(code)
                seconds = used.ru_utime + used.ru_stime
                news = {"number": numbers.pop(process), "status": status}
                _tell(sink, {**news, "seconds": seconds})
    return None


def become(order: dict[str, Any]) -> list[str]:
    """In the forked process: streams, folder, environment; gives the arguments."""
    with contextlib.suppress(ProcessLookupError):
        os.setpgid(0, 0)
    modes = (os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT | os.O_APPEND] * 2)
    for number, (name, mode) in enumerate(zip(order["streams"], modes, strict=True)):
        opened = os.open(name, mode, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(order["cwd"])
    os.environ.update(order["env"])
    logging.root.handlers.clear()  # what libraries have put there; main is the first
    tempfile.tempdir = None
    environment.prepare()
    signals.remember()
    return order["argv"]


def _tell(sink: int, news: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(sink, json.dumps(news).encode() + b"\n")


def _import() -> None:
    """What a run imports, all of it."""
    import array_record.python.array_record_module
    import grain
    import jax
    import optax
    import orbax.checkpoint
    import safetensors.numpy
    import scipy.stats
    import sentencex
    import tensorflow_datasets

    from bert_jax import describe, evaluate, main, predict, tasks, train
    from bert_jax.runtime import compilation_cache, notice
    from bert_jax.training import asked, initial

    del array_record, grain, jax, optax, orbax, safetensors, scipy, sentencex
    del tensorflow_datasets, asked, compilation_cache, describe, evaluate, initial
    del main, notice, predict, tasks, train
    environment.check()


if __name__ == "__main__":
    for its_number in signals.SIGNALS:
        its_handler = (
            signal.default_int_handler
            if its_number == signal.SIGINT
            else signal.SIG_DFL
        )
        signal.signal(its_number, its_handler)
    _import()
    gc.collect()
    gc.freeze()  # no run looks through what all of them have in common
    its_sink = int(sys.argv[2])
    _tell(its_sink, {"number": -1, "pid": os.getpid()})
    if (its_order := serve(int(sys.argv[1]), its_sink)) is not None:
        its_arguments = become(its_order)
        from bert_jax import main as program

        environment.end(program.main(its_arguments))
