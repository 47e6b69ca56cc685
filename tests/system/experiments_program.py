"""Stands for the programs that experiments/ starts, in a campaign: bert_jax.main, and
with --kind= others. Leaves what they leave, piece by piece.

It waits between the pieces, so that a kill finds it anywhere, and goes on where one has
left it. A run's config.json is the one that its arguments make, of so few steps.
Imports nothing slow.
"""

import fcntl
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PIECES = 3
_SCORES = ("accuracy", "f1", "exact_match", "cross_entropy", "perplexity")


def write(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.new")  # of one process: it holds a lock
    new.write_text(text)
    new.rename(path)


def config_of(arguments: Sequence[str]) -> dict[str, Any]:
    """The config that a run of these arguments writes, of PIECES steps."""
    sys.path.insert(0, str(ROOT))  # isolated, as this is started
    from bert_jax.config import command_line, configuration

    line = command_line.parse(arguments)
    config = configuration.load(line.config, line.overrides)
    config.train.num_steps = PIECES
    return config.to_dict()


def run(folder: Path, config: dict[str, Any], seed: int, count: int = 1) -> None:
    """What a run of bert_jax.main of `count` seeds leaves in its own folder."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {**config, "seed": seed, "train": {**config["train"], "seeds": count}}
    write(folder / "config.json", json.dumps(own))
    rate = config["optimizer"]["learning_rate"]
    lines = []
    for step in range(1, PIECES + 1):
        time.sleep(float(os.environ.get("PROGRAM_PAUSE", "0")))
        score = seed / 10 + 1000 * rate + step / 100
        for split in ("train", "dev", "dev_train", "test"):
            line = {"step": step, "split": split, "time": 0.0}
            line.update(dict.fromkeys(_SCORES, score))
            lines.append(json.dumps(line) + "\n")
        write(folder / "metrics.jsonl", "".join(lines))


def other(kind: str, given: dict[str, str]) -> None:
    """What another program leaves at its --output."""
    place = Path(given["output"])
    budget = {"steps": 40, "words": 1005.0, "positions": 1000, "parameters": 12}
    choices = ("embeddings", "last", "sum_all", "concat_last_four")
    scores = {"dev": {"restarts": [0.5, 0.52]}}
    results = {"score": "f1", "choices": dict.fromkeys(choices, scores)}
    path, content = {
        "budget": (place, {**budget, "flops": 1e9}),
        "features": (place / "results.json", results),
        "ensemble": (place / "scores.json", {"exact_match": 60.0, "f1": 70.0}),
        "vectors": (place / "vocab.txt", ["[PAD]"]),
        "written": (place, {"version": "TriviaQA", "data": []}),
    }[kind]
    if kind != "written":  # the real one wants its folder there
        path.parent.mkdir(parents=True, exist_ok=True)
    time.sleep(float(os.environ.get("PROGRAM_PAUSE", "0")))
    write(path, json.dumps(content))


def main(arguments: list[str]) -> int:
    given = dict(argument.lstrip("-").partition("=")[::2] for argument in arguments)
    if "kind" in given:
        other(given["kind"], given)
        return 0
    folder = Path(given["workdir"])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("error: another process is at work there", file=sys.stderr)
            return 2
        config = config_of(arguments)
        seed, count = config["seed"], config["train"]["seeds"]
        run(folder, config, seed, count)
        for number in range(count if count > 1 else 0):
            run(folder / f"seed_{seed + number}", config, seed + number)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
