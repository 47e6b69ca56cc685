"""Requests a second of `--mode=serve`, and how long each waits, beside ONNX Runtime.

    python -m experiments.speed.serving --vocabulary=vocab.txt --texts reviews.jsonl \
        [--layers=4] [--hidden=256] [--clients=1,8,64] [--output=FILE.json]

The texts and the model are those of `inference`. `ours` is the program as a user starts
it; ONNX Runtime is behind the same HTTP framework (serving_sides.py): in the same
batches, and a row at a time. So many clients each send one text after another, without
a pause, for `--turn` seconds; the servers take turns. A first round is not counted: it
asks for each text alone, and in lists of 4 and 16, so that all is compiled. The clients
are threads of one process, on the same cores; `clients' share` is the processor time
that they take, of one core.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_jax.runtime.terminal import table
from experiments.lib import command_line, ending
from experiments.speed import inference, measuring
from experiments.speed.inference_sides import LIMIT

MODULE = "experiments.speed.serving"
ORT = "experiments.speed.serving_sides"
PACKAGES = ("jax", "torch", "transformers", "onnxruntime")
STARTS = 120.0  # seconds that a server may take to start
TOGETHER = (1, 4, 16)  # rows of a program (training/inference.py)


class Turn(NamedTuple):
    """What some clients saw."""

    rate: float  # requests a second
    half: float  # seconds, the 50th percentile
    slow: float  # the 99th
    share: float  # of one core, taken by the clients


@contextlib.contextmanager
def served(arguments: Sequence[str]) -> Iterator[int]:
    """A server's port.

    Raises:
      RuntimeError: it does not start; with its last line.
    """
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=measuring.ROOT,
            stdin=subprocess.PIPE,
            stderr=said,
        )
        try:
            yield _port(process, said)
        finally:
            process.terminate()
            process.communicate()


def _port(process: subprocess.Popen, said: Any) -> int:
    end = time.monotonic() + STARTS
    while time.monotonic() < end and process.poll() is None:
        said.seek(0)
        address = said.read().partition("serving on http://")[2].split()
        if address:
            return int(address[0].rpartition(":")[2])
        time.sleep(0.1)
    said.seek(0)
    lines = said.read().strip().splitlines() or ["it said nothing"]
    raise RuntimeError(f"no server: {lines[-1]}")


def asked(port: int, rows: Any) -> Any:
    """The answer to a request.

    Raises:
      RuntimeError: it is an error.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=STARTS)
    with contextlib.closing(connection):
        connection.request("POST", "/predict", json.dumps(rows))
        answer = connection.getresponse()
        content = json.load(answer)
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}: {content}")
    return content


def warmed(port: int, texts: Sequence[str]) -> list[str]:
    """Asks for all; the labels."""
    labels = []
    for text in texts:
        for count in TOGETHER:
            rows = asked(port, [{"text": text}] * count)
        labels.append(rows[0]["label"])
    return labels


def loaded(port: int, texts: Sequence[str], clients: int, seconds: float) -> Turn:
    """Has so many clients ask for so long."""
    next_text, end = itertools.cycle(texts), time.monotonic() + seconds

    def client() -> list[float]:
        times = []
        while (start := time.monotonic()) < end:
            asked(port, {"text": next(next_text)})
            times.append(time.monotonic() - start)
        return times

    start, used = time.monotonic(), time.process_time()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        asking = [pool.submit(client) for _ in range(clients)]
        times = [each for one in asking for each in one.result()]
    took, used = time.monotonic() - start, time.process_time() - used
    half, slow = np.percentile(times, (50, 99))
    return Turn(len(times) / took, float(half), float(slow), used / took)


def servers(args: argparse.Namespace, folder: str) -> dict[str, Sequence[str]]:
    """What starts each."""
    ours = [
        *("bert_jax.main", "--mode=serve", "--config=configs/finetune/text.py"),
        *(f"--config.init_from={folder}", f"--config.task.max_seq_length={LIMIT}"),
        *("--port=0", f"--workdir={folder}/run"),
        f"--config.predict.batch_size={args.batch}",
    ]
    commands: dict[str, Sequence[str]] = {"ours": ours}
    if inference.has("onnxruntime"):
        commands["ONNX Runtime, the same batches"] = [ORT, folder, str(args.batch)]
        commands["ONNX Runtime, a row at a time"] = [ORT, folder, "1"]
    return commands


def measure(args: argparse.Namespace, texts: list[str]) -> dict[str, Any]:
    """The turns of all servers, by the number of clients."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        inference.make_model(args, Path(folder))
        ports = {
            name: stack.enter_context(served(arguments))
            for name, arguments in servers(args, folder).items()
        }
        labels = {name: warmed(port, texts) for name, port in ports.items()}
        turns: dict[int, dict[str, list[Turn]]] = {}
        for count in args.clients:
            turns[count] = {name: [] for name in ports}
            for number in range(args.rounds):
                for name in list(ports)[:: -1 if number % 2 else 1]:
                    turn = loaded(ports[name], texts, count, args.turn)
                    turns[count][name].append(turn)
    same = [sum(map(str.__eq__, labels["ours"], each)) for each in labels.values()]
    return {
        "model": f"{args.layers} layers of {args.hidden}",
        "texts": len(texts),
        "same_label": min(same) / len(texts),
        "turns": turns,
    }


HEADER = (
    *("clients", "server", "requests/s", "50% ms", "99% ms"),
    *("clients' share", "ours / it"),
)


def rows(turns: Mapping[int, Mapping[str, Sequence[Turn]]]) -> list[tuple[str, ...]]:
    """The lines of the table: medians of the turns, and how many times as many requests
    `ours` answers, turn by turn."""
    lines: list[tuple[str, ...]] = []
    for count, servers_ in turns.items():
        for name, each in servers_.items():
            middle = Turn(*map(statistics.median, zip(*each, strict=True)))
            pairs = zip(servers_["ours"], each, strict=True)
            times = statistics.median(ours.rate / other.rate for ours, other in pairs)
            lines.append(
                (
                    str(count),
                    name,
                    f"{middle.rate:.1f}",
                    f"{1e3 * middle.half:.1f}",
                    f"{1e3 * middle.slow:.1f}",
                    f"{middle.share:.2f}",
                    "" if name == "ours" else f"{times:.2f}",
                )
            )
    return lines


@ending.command
def main(arguments: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = inference.parser_of(MODULE, __doc__, rows=96)
    parser.add_argument("--clients", default="1,8,64", type=command_line.several(int))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turn", type=float, default=5.0, help="seconds of one")
    parser.set_defaults(model="bert")
    args = parser.parse_args(arguments)
    facts = measuring.begin(MODULE, arguments, PACKAGES)
    texts = inference.read_texts(args)
    figures = measure(args, texts)
    print(
        f"{figures['model']}, {len(texts)} texts, at most {args.batch} rows together: "
        f"the same label for at least {figures['same_label']:.1%}\n"
    )
    print(table(rows(figures["turns"]), HEADER))
    measuring.write(args.output, {**facts, **figures})
    return 0


if __name__ == "__main__":
    ending.start(main)
