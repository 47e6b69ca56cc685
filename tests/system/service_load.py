"""How long honest clients of `--mode=serve` wait while hostile ones try.

    python -m tests.system.service_load [--honest=8] [--hostile=200] [--seconds=10]

A server answers with the weights of pretrained/mini. So many honest clients each ask
one row after another, with `--pause` seconds between; alone, then beside the hostile
ones (tests/system/hostile.py, each kind but what is right), and so on in turn,
`--rounds` times. The rows of both are drawn alike, and what they need is compiled
before. The hostile ones are on other machines in real life, so here they run in
processes of their own, of the lowest priority (nice 19), and each client has an address
of its own on the loopback network; with `--one-address` all have one. With `--apart`
the server has the first processor for itself, alone too, and all clients the others.
Prints the percentiles, and how many times as long the 99th is beside them; and the load
average before the server starts. Where other programs take the processors, the hostile
ones try little and the ratio says nothing.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import random
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import date
from multiprocessing.synchronize import Event, Semaphore
from typing import Any, NamedTuple

import numpy as np

from bert_jax.runtime.terminal import table
from tests.served import CLIENT, asked, request
from tests.system import hostile
from tests.system.chaos import processor
from tests.system.service import Server


class Address(NamedTuple):
    """On the loopback network."""

    network: int  # 0: all clients' one

    def be(self, number: int) -> None:
        """Gives a thread's clients that number of the network's."""
        if self.network:
            CLIENT.set(f"127.{self.network}.{number // 250}.{number % 250 + 1}")


def honest(
    port: int, seed: int, end: float, pause: float, address: Address
) -> list[float]:
    """Asks until the end; the seconds that each answer took.

    Raises:
      RuntimeError: an answer is none.
    """
    address.be(seed)
    rng, times = random.Random(seed), []
    while time.monotonic() < end:
        time.sleep(rng.uniform(0, 2 * pause))
        row = hostile.row(rng)
        start = time.monotonic()
        status, said = asked(port, request(row))
        times.append(time.monotonic() - start)
        if status != 200 or len(said["masks"]) != row["text"].count("[MASK]"):
            raise RuntimeError(f"status {status}: {said}")
    return times


class Signals(NamedTuple):
    """What hostile processes hear, and tell."""

    goes: Event
    ends: Event
    ready: Semaphore
    tries: Any  # a shared number


def attack(
    port: int, clients: int, seed: int, signals: Signals, address: Address
) -> None:
    """Hostile clients in a process, while they may."""
    os.nice(19)

    def go(number: int) -> None:
        address.be(number)
        rng = random.Random(f"{seed}:{number}")
        while not signals.ends.is_set():
            if not signals.goes.wait(0.5):
                continue
            drawn = hostile.draw(rng.randrange(10**9), seed)
            if drawn.kind == "right":
                continue
            with contextlib.suppress(OSError):  # it is cut
                drawn.run(port)
            with signals.tries.get_lock():
                signals.tries.value += 1
            signals.ends.wait(rng.uniform(0, 1))

    threads = [threading.Thread(target=go, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    signals.ready.release()
    for thread in threads:
        thread.join()


@contextlib.contextmanager
def attackers(
    port: int, clients: int, seed: int, networks: Sequence[int]
) -> Iterator[Signals]:
    """Processes of hostile clients, which wait until they may go."""
    new = multiprocessing.get_context("spawn")
    signals = Signals(new.Event(), new.Event(), new.Semaphore(0), new.Value("i", 0))
    processes = [
        new.Process(
            target=attack, args=(port, share, seed + n, signals, Address(networks[n]))
        )
        for n, share in enumerate([clients // 2, clients - clients // 2])
    ]
    for process in processes:
        process.start()
    try:
        for _ in processes:
            signals.ready.acquire()
        yield signals
    finally:
        signals.ends.set()
        for process in processes:
            process.join()


def warm(port: int) -> None:
    """Has each program compiled, see training/inference.py."""
    for count in (1, 4, 12):
        # Twelve rows are computed together where nobody without faults has come lately.
        CLIENT.set(f"127.9.0.{count}")
        time.sleep(1.1)
        for words in range(1, 32):
            if count == 12:
                asked(port, b"?\r\n\r\n")
            for masks in (1, 2, 4, 8, 16):
                row = {"text": " ".join(["[MASK]"] * masks + ["a"] * (words - masks))}
                asked(port, request([row] * count))
    CLIENT.set("")


def measured(
    port: int, clients: int, seconds: float, pause: float, address: Address
) -> list[float]:
    end = time.monotonic() + seconds
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        found = [
            pool.submit(honest, port, n, end, pause, address) for n in range(clients)
        ]
        return [one for each in found for one in each.result()]


def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--honest", type=int, default=8)
    parser.add_argument("--hostile", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each part")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.1, help="of honest clients")
    parser.add_argument("--apart", action="store_true", help="processors")
    parser.add_argument("--one-address", action="store_true", help="of all clients")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    given = ["python", "-m", "tests.system.service_load", *argv]
    print(f"$ {shlex.join(given)}")
    machine = f"{processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{date.today()}, {machine}", flush=True)
    processors = os.sched_getaffinity(0)
    if options.apart:
        os.sched_setaffinity(0, {min(processors)})  # what starts inherits it
    server = Server()
    if options.apart:
        os.sched_setaffinity(0, processors - {min(processors)})
    alone, beside, tries = [], [], 0
    networks = [0, 0, 0] if options.one_address else [1, 2, 3]
    port, address = server.port, Address(networks[0])
    ask = functools.partial(
        measured, port, options.honest, options.seconds, options.pause, address
    )
    warm(port)
    server.wait_until_idle()
    with attackers(port, options.hostile, options.seed, networks[1:]) as signals:
        for _ in range(options.rounds):
            alone += ask()
            signals.goes.set()
            time.sleep(1)
            before = signals.tries.value
            beside += ask()
            tries += signals.tries.value - before
            signals.goes.clear()
            time.sleep(2)
    faults = server.end()
    rows = [
        (name, f"{len(times):,}", *(f"{1000 * x:.0f}" for x in percentiles(times)))
        for name, times in (("alone", alone), ("beside", beside))
    ]
    print(table(rows, ("honest clients", "answers", "50% ms", "90%", "99%", "most")))
    ratio = percentiles(beside)[2] / percentiles(alone)[2]
    print(f"{tries:,} hostile tries beside them; the 99th percentile is {ratio:.2f} x")
    print("\n".join(faults) or "the server has ended as it should, and said nothing")
    return 1 if faults else 0


def percentiles(times: Sequence[float]) -> list[float]:
    return [float(x) for x in np.percentile(times, (50, 90, 99, 100))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
