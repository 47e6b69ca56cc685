"""Stands for the programs that experiments/ starts, in a campaign: bert_jax.main, and
with --kind= others. Leaves what they leave, piece by piece.

It waits between the pieces, so that a kill finds it anywhere, and goes on where one has
left it. Imports nothing slow.
"""

import fcntl
import json
import os
import sys
import time
from pathlib import Path

PIECES = 3
_SCORES = ("accuracy", "f1", "exact_match", "cross_entropy", "perplexity")


def write(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.new")  # of one process: it holds a lock
    new.write_text(text)
    new.rename(path)


def run(folder: Path, rate: float, seed: int) -> None:
    """What a run of bert_jax.main leaves."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "seed": seed,
        "model": {},
        "train": {"seeds": 1, "num_steps": PIECES, "early_stop": 0, "batch_size": 4},
        "evaluate": {"checkpoint": "last"},
        "optimizer": {"learning_rate": rate},
    }
    write(folder / "config.json", json.dumps(config))
    lines = []
    for step in range(1, PIECES + 1):
        time.sleep(float(os.environ.get("PROGRAM_PAUSE", "0")))
        score = seed / 10 + 1000 * rate + step / 100
        for split in ("train", "dev", "dev_train", "test"):
            own = {"step": step, "split": split, "time": 0.0}
            own.update(dict.fromkeys(_SCORES, score))
            lines.append(json.dumps(own) + "\n")
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
        "written": (place, {"version": "TriviaQA", "data": []}),
    }[kind]
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
        rate = float(given.get("config.optimizer.learning_rate", "0"))
        seed = int(given.get("config.seed", "0"))
        count = int(given.get("config.train.seeds", "1"))
        run(folder, rate, seed)
        for number in range(count if count > 1 else 0):
            run(folder / f"seed_{seed + number}", rate, seed + number)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
