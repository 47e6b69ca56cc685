"""The speed of fine-tuning, here and by the Hugging Face Trainer; padding.

    python -m experiments.speed.finetuning --vocab=vocab.txt --size=base \
        --data sst2=glue_data/SST-2 cola=glue_data/CoLA squad=train-v1.1.json \
        [--steps=100] [--output=FILE.json]

Each task is trained by bert_jax.main and by the Trainer (see `hf_trainer`), both with
rows padded to the longest of a batch and to the maximum; both see the same rows in the
same batches, with AdamW, clipping and dropout. The four are whole processes that take
turns; of each the better speed counts, in sequences a second over the steps without the
first quarter and without compilation (torch compiles nothing here). `whole` is the
whole process in seconds: start, data and, here, compilation and the final evaluation.
`loss` is the last step's; first weights and dropout are each side's own.

The Trainer needs the extras parity and peers; without them ours run alone.
"""

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.runtime.terminal import table
from bert_jax.workdir import metrics
from experiments.lib import ending, report
from experiments.lib.command_line import Parser
from experiments.speed import measuring

MODULE = "experiments.speed.finetuning"
TRAINER = "experiments.speed.hf_trainer"
OURS, THEIRS = "bert_jax", "Trainer"
# Whose, and how rows are padded: as DataCollatorWithPadding calls it.
SIDES = tuple((who, how) for how in ("longest", "max_length") for who in (OURS, THEIRS))


def config_of(
    options: argparse.Namespace, task: str, data: str
) -> tuple[str, list[str]]:
    """The config of a task and the fields that are set."""
    fields = [
        f"--config.tokenizer.vocab_file={options.vocab}",
        f"--config.train.num_steps={options.steps}",
        f"--config.train.batch_size={options.batch}",
        f"--config.model.dtype={options.dtype}",
        "--config.optimizer.name=adamw",
        "--config.train.eval_every_epoch=False",
        "--config.evaluate.splits=('dev',)",
    ]
    if task == "squad":
        files = [f"--config.task.{name}_file={data}" for name in ("train", "dev")]
        return f"configs/finetune/squad.py:size={options.size}", [*fields, *files]
    config = f"configs/finetune/glue.py:task={task},size={options.size}"
    return config, [*fields, f"--config.task.data_dir={data}"]


def ours(config: str, fields: list[str], padding: str, folder: Path) -> dict[str, Any]:
    """Speed, the last step's loss, and the process's seconds."""
    steps = next(int(f.partition("=")[2]) for f in fields if "num_steps" in f)
    log = f"--config.train.log_every={max(1, steps // 4)}"
    to_max = f"--config.task.pad_to_max={padding == 'max_length'}"
    run = [f"--workdir={folder}", f"--config={config}", *fields, log, to_max]
    start = time.monotonic()
    measuring.program(["-m", "bert_jax.main", *run])
    seconds = time.monotonic() - start
    lines = metrics.read(folder, "train")
    return {
        "speed": speed([line["sequences_per_second"] for line in lines]),
        "loss": lines[-1]["loss"],
        "whole": seconds,
    }


def speed(rates: list[float]) -> float:
    """Of the log's lines but the first: the same number of steps each."""
    rest = rates[1:] or rates
    return len(rest) / sum(1 / rate for rate in rest)


def theirs(config: str, fields: list[str], padding: str) -> dict[str, Any]:
    """As `ours`, by the Trainer."""
    case = {"config": config, "fields": fields, "padding": padding}
    found = measuring.in_process(TRAINER, case, limit=24 * 3600)
    if "error" in found:
        sys.exit(f"error: the Trainer: {found['error']}")
    return {"speed": found["speed"], "loss": found["loss"], "whole": found["seconds"]}


def padding(
    options: argparse.Namespace, task: str, data: str, folder: Path
) -> dict[str, dict[str, float]]:
    """Of each side the best speed, its loss and the shortest process."""
    config, fields = config_of(options, task, data)
    found: dict[str, dict[str, float]] = {}
    peer = importlib.util.find_spec("accelerate") is not None
    for turn in range(options.rounds):
        for who, how in SIDES:
            if who == OURS:
                workdir = folder / f"{task}-{how}-{turn}"
                one = ours(config, fields, how, workdir)
            elif peer:
                one = theirs(config, fields, how)
            else:
                continue
            best = found.setdefault(f"{who}, {how}", one)
            best["speed"] = max(best["speed"], one["speed"])
            best["whole"] = min(best["whole"], one["whole"])
    return found


def show(task: str, found: dict[str, dict[str, float]]) -> str:
    """A task's table: speeds, and how many times as fast our default is."""
    fast = found[f"{OURS}, longest"]["speed"]
    rows = [
        (
            task,
            name,
            f"{one['speed']:.1f}",
            f"{fast / one['speed']:.2f}",
            f"{one['loss']:.4f}",
            f"{one['whole']:.1f}",
        )
        for name, one in found.items()
    ]
    header = ("task", "side, padded to", "sequences/s", "ours / it", "loss", "whole, s")
    return table(rows, header)


@ending.command
def main(arguments: Sequence[str]) -> int:
    parser = Parser(MODULE, __doc__)
    parser.add_argument("--data", nargs="+", required=True, metavar="TASK=PATH")
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", default="", help="JSON; written after each task")
    options = parser.parse_args(arguments)
    packages = (*report.PACKAGES, "accelerate")
    facts = measuring.begin(MODULE, arguments, packages)
    cases: list[dict[str, Any]] = []
    for task, _, data in (pair.partition("=") for pair in options.data):
        with tempfile.TemporaryDirectory() as temporary:
            case: dict[str, Any] = {"task": task}
            case["padding"] = padding(options, task, data, Path(temporary))
            print(f"\n{show(task, case['padding'])}", flush=True)
        cases.append(case)
        measuring.write(options.output, {**facts, "cases": cases})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
