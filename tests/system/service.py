"""Hostile clients of `--mode=serve`; none may harm it, or who asks beside them.

    python -m tests.system.service [--clients=1100] [--seed=0] [--workers=16]
    python -m tests.system.service --only=17 --seed=0

A server answers with the weights of pretrained/mini. Clients of each kind of
tests/system/hostile.py come, some at once, and for each is checked what it got. An
honest client asks all the while, and must get the right answer, soon. After every
some hundred the server gets SIGTERM while clients hold it in every way: it must end
with status 143 within its grace, having printed one line, and start again; its open
files and threads must have stayed as few.

Prints a table by kind, and for each failure the command that makes it again. The exit
status is 1 where anything has failed.
"""

import argparse
import concurrent.futures
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.runtime.terminal import table
from tests.forked import ROOT
from tests.served import asked, connected, head, request
from tests.system import hostile

ROUND = 370  # clients between two starts of the server
GRACE = 3  # seconds
HONEST = {"text": "Paris is the capital of [MASK]."}
_SOON = 5.0  # seconds: an honest client's answer, on a busy machine


class Wrong(NamedTuple):
    """What has failed."""

    number: int | None  # of the client; None: of no one alone
    kind: str
    about: str
    fault: str


class Server:
    """The program as a user starts it."""

    def __init__(self, *arguments: str):
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (until the end)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "bert_jax.main", "--mode=serve", "--port=0"),
                *(f"--config.init_from={ROOT / 'pretrained' / 'mini'}", *arguments),
                *("--workdir=no-run", f"--config.serve.grace_seconds={GRACE}"),
            ],
            cwd=ROOT,
            stderr=self._log,
        )
        while "serving on" not in self.said():
            if self._process.poll() is not None:
                raise RuntimeError(f"no server: {self.said()}")
            time.sleep(0.1)
        address = self.said().partition("serving on ")[2].split()[0]
        self.port = int(address.rpartition(":")[2])

    def said(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def holds(self) -> tuple[int, int]:
        """Its open files and its threads."""
        own = Path("/proc") / str(self._process.pid)
        return len(os.listdir(own / "fd")), len(os.listdir(own / "task"))

    def wait_until_idle(self) -> None:
        """Waits until it has computed and compiled what it was asked for."""
        path, before = Path("/proc") / str(self._process.pid) / "stat", -1
        while True:
            used = sum(map(int, path.read_text().rpartition(")")[2].split()[11:13]))
            if used - before < 5:  # hundredths of a second, in two
                return
            before = used
            time.sleep(2)

    def end(self) -> list[str]:
        """SIGTERM; gives what is wrong with how it ends."""
        start = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(GRACE + 10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return ["SIGTERM does not end it"]
        took = time.monotonic() - start
        faults = [] if status == 143 else [f"SIGTERM: status {status}"]
        if took > GRACE + 3:
            faults.append(f"SIGTERM: {took:.1f} s")
        if lines := [x for x in self.said().splitlines() if "serving on" not in x]:
            faults.append("said: " + " / ".join(lines)[:500])
        return faults


def held(port: int, stack: contextlib.ExitStack) -> None:
    """Clients that hold a server in every way."""
    many = request([HONEST] * 2000)
    for raw in (b"", b"POST /p", head("Content-Length: 9"), many[:-1], many, many):
        stack.enter_context(connected(port, buffer=1000)).sendall(raw)


def answer(port: int) -> list[str]:
    """The guesses of the honest request; their probabilities differ in the last digits
    with who is computed beside."""
    _, said = asked(port, request(HONEST))
    return [guess["token"] for guess in said["masks"][0]]


@contextlib.contextmanager
def honest(port: int, wrong: list[Wrong], times: list[float]) -> Iterator[None]:
    """Asks all the while, from a thread."""
    ends = threading.Event()
    expected = answer(port)

    def ask() -> None:
        while not ends.wait(0.02):
            start = time.monotonic()
            try:
                found = answer(port)
            except (OSError, LookupError, TypeError) as error:
                found = [repr(error)]
            times.append(time.monotonic() - start)
            if found != expected or times[-1] > _SOON:
                fault = f"{times[-1]:.1f} s: {str(found)[:200]}"
                wrong.append(Wrong(None, "honest", "beside the others", fault))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def tried(number: int, seed: int, port: int) -> Wrong | str:
    """What is wrong with what came of a client, or its kind."""
    client = hostile.draw(number, seed)
    try:
        fault = client.run(port)
    except Exception as error:  # whatever it is, the campaign goes on
        fault = f"{type(error).__name__}: {error}"
    return Wrong(number, client.kind, client.about, fault) if fault else client.kind


def one_round(
    numbers: Sequence[int], seed: int, workers: int, times: list[float]
) -> tuple[Counter, list[Wrong]]:
    """From the start of a server to its end."""
    server, wrong, counts = Server(), [], Counter()
    asked(server.port, request(HONEST))
    before = server.holds()
    with (
        concurrent.futures.ThreadPoolExecutor(workers) as pool,
        honest(server.port, wrong, times),
    ):
        for found in pool.map(lambda n: tried(n, seed, server.port), numbers):
            counts[found if isinstance(found, str) else found.kind] += 1
            wrong += [found] if isinstance(found, Wrong) else []
    time.sleep(1)
    after = server.holds()
    if after[0] > before[0] + 2 or after[1] > before[1] + 2:
        fault = f"files, threads: {before} -> {after}"
        wrong.append(Wrong(None, "held", "after the round", fault))
    with contextlib.ExitStack() as stack:
        held(server.port, stack)
        time.sleep(0.3)
        wrong += [Wrong(None, "end", "held in every way", x) for x in server.end()]
    return counts, wrong


def report(counts: Mapping[str, int], wrong: Sequence[Wrong], seed: int) -> str:
    """A table by kind; and each failure, with its command."""
    failed = Counter(each.kind for each in wrong)
    lines = [(kind, str(counts[kind]), str(failed[kind])) for kind in sorted(counts)]
    lines.append(("all", str(sum(counts.values())), str(len(wrong))))
    blocks = [table(lines, ("clients that are, do or send", "tried", "wrong"))]
    for each in wrong:
        again = "" if each.number is None else f"--only={each.number} "
        command = f"python -m tests.system.service {again}--seed={seed}"
        blocks.append(f"{each.kind}: {each.about}\n  {each.fault}\n  {command}")
    return "\n\n".join([*blocks, f"{len(wrong)} failed"])


def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=1100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=16, help="clients at once")
    parser.add_argument("--only", type=int, help="the number of a client")
    options = parser.parse_args(argv)
    numbers = range(options.clients)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
        client = hostile.draw(options.only, options.seed)
        print(f"{client.kind}: {client.about}")
    print(
        f"$ {shlex.join(['python', '-m', 'tests.system.service', *argv])}", flush=True
    )
    start = time.monotonic()
    counts, wrong, times = Counter(), [], []
    for first in range(0, len(numbers), ROUND):
        some = numbers[first : first + ROUND]
        found, failed = one_round(some, options.seed, options.workers, times)
        counts += found
        wrong += failed
    times.sort()
    print(f"\n{report(counts, wrong, options.seed)}")
    print(
        f"{len(times):,} honest requests beside them, the slowest {times[-1]:.2f} s, "
        f"half in {1000 * times[len(times) // 2]:.0f} ms; in all "
        f"{time.monotonic() - start:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
