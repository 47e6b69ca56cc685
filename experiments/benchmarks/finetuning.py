"""Two ratios of fine-tuning: padding to the longest of a batch, and seeds together.

    python -m experiments.benchmarks.finetuning --data=glue_data/SST-2 --task=sst2 \
        --vocab=vocab.txt [--size=tiny] [--steps=200] [--seeds=4]

Padding: the same steps with `task.pad_to_max` and without, in turns, twice; of each
side the better speed (median of the log's lines) and the last loss. Seeds: one run with
`train.seeds` beside as many single ones, whole processes, and the largest relative
difference of their losses. All through bert_jax.main, in a temporary folder.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import date
from importlib import metadata
from pathlib import Path

from bert_jax.workdir import metrics

TIMES = 2  # each side is run


def run(options: argparse.Namespace, workdir: Path, *fields: str) -> float:
    """One run of bert_jax.main; gives its wall time, seconds."""
    command = [
        *(sys.executable, "-m", "bert_jax.main", f"--workdir={workdir}"),
        f"--config=configs/finetune/glue.py:task={options.task},size={options.size}",
        f"--config.task.data_dir={options.data}",
        f"--config.tokenizer.vocab_file={options.vocab}",
        f"--config.train.num_steps={options.steps}",
        f"--config.train.log_every={max(1, options.steps // 4)}",
        *fields,
    ]
    start = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - start


def padding(options: argparse.Namespace, folder: Path) -> dict[str, dict[str, float]]:
    """Sequences a second (the median of the log's lines) and the evaluation's loss."""
    best: dict[str, dict[str, float]] = {"to the maximum": {}, "to the longest": {}}
    for turn in range(TIMES):
        for side, found in best.items():
            workdir = folder / f"{side}-{turn}".replace(" ", "-")
            to_max = f"--config.task.pad_to_max={side == 'to the maximum'}"
            run(options, workdir, to_max)
            lines = metrics.read(workdir, "train")
            speeds = sorted(line["sequences_per_second"] for line in lines)
            speed = speeds[len(speeds) // 2]
            found["speed"] = max(found.get("speed", 0.0), speed)
            found["loss"] = lines[-1]["loss"]
    return best


def seeds(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Seconds of the two ways, and how far their losses are apart."""
    log = "--config.train.log_every=1"
    together = run(
        options, folder / "all", log, f"--config.train.seeds={options.seeds}"
    )
    apart, worst = 0.0, 0.0
    for seed in range(options.seeds):
        single = folder / f"single-{seed}"
        apart += run(options, single, log, f"--config.seed={seed}")
        mine = metrics.read(folder / "all" / f"seed_{seed}", "train")
        for line, other in zip(mine, metrics.read(single, "train"), strict=True):
            difference = abs(line["loss"] - other["loss"]) / abs(other["loss"])
            worst = max(worst, difference)
    return {"together": together, "apart": apart, "difference": worst}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--task", default="sst2")
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    print(f"$ python -m experiments.benchmarks.finetuning {' '.join(sys.argv[1:])}")
    print(
        f"{date.today()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"jax {metadata.version('jax')}"
    )
    with tempfile.TemporaryDirectory() as temporary:
        sides = padding(options, Path(temporary))
        for side, found in sides.items():
            print(f"padded {side}: {json.dumps(found)}")
        slow, fast = (found["speed"] for found in sides.values())
        print(f"speed, longest / maximum: {fast / slow:.2f} x")
        found = seeds(options, Path(temporary))
        print(f"{options.seeds} seeds: {json.dumps(found)}")
        print(f"time, together / apart: {found['together'] / found['apart']:.2f} x")


if __name__ == "__main__":
    main()
