"""A grid of GLUE runs: tasks x learning rates x epochs x seeds, picked on dev.

    python -m experiments.paper.glue --data=glue_data --init_from=WEIGHTS --size=base \
        --tasks=cola,mrpc --learning_rates=5e-5,4e-5,3e-5,2e-5 --epochs=3 \
        --seeds=0,1,2 --output=runs/glue [--config.FIELD=VALUE ...]

The data folder holds one folder a task, named as GLUE names them (CoLA, SST-2, ...);
--data=tfds:glue takes them from TFDS, --data=hf:nyu-mll/glue from the Hub.
Runs go one after the other, each as bert_jax.main in a work directory of its own under
the output folder; the same command goes on where it stopped, --plan only shows what is
left. At the end stand a table,
with the paper's test scores beside it, and OUTPUT/submission.zip: the test predictions
of each task's best run on dev, under the leaderboard's names.
"""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bert_jax.data.columns import BY_NAME
from bert_jax.errors import UserError
from bert_jax.runtime import hub
from bert_jax.tasks.glue.data import TASKS
from bert_jax.workdir import metrics
from configs.base import SIZES
from experiments.lib import command_line, ending, execution, kept
from experiments.lib.running import ROOT
from experiments.lib.runs import Run
from experiments.paper import glue_table

_SET = (
    *("init_from", "seed", "train.seeds", "train.num_epochs", "train.num_steps"),
    *("task.data_dir", "optimizer.learning_rate"),
)


class Point(NamedTuple):
    """One run of the grid."""

    task: str
    learning_rate: float
    epochs: float
    seed: int

    def folder(self, output: Path) -> Path:
        name = f"lr{self.learning_rate:g}-epochs{self.epochs:g}-seed{self.seed}"
        return output / self.task / name


@ending.command
def main(argv: Sequence[str]) -> int:
    """Runs what is left of the grid; gives the exit status."""
    options, fields = parse(argv)
    axes = (options.tasks, options.learning_rates, options.epochs, options.seeds)
    points = [Point(*values) for values in itertools.product(*axes)]
    runs = []
    for point in points:
        folder, given = point.folder(options.output), arguments(point, options, fields)
        runs.append(Run(point.task, folder, given, options.size))
        _check_arguments(runs[-1])

    def report(_: object) -> str:
        results = [
            glue_table.Result(*point, run.folder, scores(run))
            for point, run in zip(points, runs, strict=True)
        ]
        said = glue_table.submission(results, options.output / "submission.zip")
        return f"{glue_table.table(results)}\n{said}"

    return execution.finish(runs, options, report)


def _check_arguments(run: Run) -> None:
    """Raises UserError where the folder has a run that was given other arguments."""
    if run.is_done:
        given = kept.read(run.result, {"command": [str]})["command"]
        if differing := set(given) ^ set(execution.command(run)):
            raise UserError(
                f"{run.folder} is of other arguments ({', '.join(sorted(differing))}); "
                "take another --output"
            )


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the fields of the config that all runs are given.

    Raises:
      UserError: a task that GLUE does not have, that has no training set or no folder;
        a field that the grid sets itself.
    """
    parser = command_line.Parser("experiments.paper.glue", __doc__)
    parser.add_argument("--data", required=True)
    names = command_line.several(str, [name for name in TASKS if name != "ax"])
    usual = ",".join(glue_table.USUAL)
    parser.add_argument("--tasks", default=usual, type=names)
    parser.add_argument("--size", default="base", choices=("tiny", *SIZES))
    parser.add_argument("--init_from", default="")
    numbers = command_line.several(float)
    rates = "5e-5,4e-5,3e-5,2e-5"
    parser.add_argument("--learning_rates", default=rates, type=numbers)
    parser.add_argument("--epochs", default="3", type=numbers)
    parser.add_argument("--seeds", default="0", type=command_line.several(int))
    parser.add_run_options("runs/glue")
    options, fields = command_line.with_fields(parser, argv, _SET)
    for task in options.tasks:
        folder = data_dir(options.data, task)
        if not folder.startswith(BY_NAME) and not Path(folder).is_dir():
            raise UserError(f"{folder}: no such folder; --data={options.data}")
    return options, fields


def data_dir(data: str, task: str) -> str:
    """Where the data of a task are."""
    if data.startswith(hub.PREFIX):
        return data
    if data.startswith("tfds:"):
        return f"{data}/{task}"
    return str(Path(data) / TASKS[task].title)


def arguments(
    run: Point, options: argparse.Namespace, fields: Sequence[str]
) -> tuple[str, ...]:
    """What bert_jax.main is given, but for the work directory."""
    config = ROOT / "configs" / "finetune" / "glue.py"
    return (
        f"--config={config}:size={options.size},task={run.task}",
        f"--config.task.data_dir={data_dir(options.data, run.task)}",
        f"--config.init_from={options.init_from}",
        f"--config.optimizer.learning_rate={run.learning_rate!r}",
        f"--config.train.num_epochs={run.epochs!r}",
        f"--config.seed={run.seed}",
        *fields,
    )


def scores(run: Run) -> dict[str, dict[str, float]]:
    """The scores, on each dev split, of the checkpoint that the predictions are of."""
    names, main_score = TASKS[run.kind].scores, TASKS[run.kind].main_score
    (lines,) = run.log("dev", names).values()
    chosen, own = lines[-1], run.config({"evaluate": {"checkpoint": str}})
    if own["evaluate"]["checkpoint"] == "best":
        chosen = max(lines, key=lambda x: glue_table.order(x[main_score]))
    found = {}
    for split in ("dev", "dev_mismatched"):
        for line in metrics.read(run.folder, split):
            if line["step"] == chosen["step"]:
                found[split] = {name: line[name] for name in names}
    return found


if __name__ == "__main__":
    ending.start(main)
