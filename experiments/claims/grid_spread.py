"""Do large data sets care less about hyper-parameters than small ones? (appendix A.3)

    python -m experiments.claims.grid_spread --data=glue_data --init_from=WEIGHTS \
        --size=base --task=sst2 --examples=500,2000,8000,32000,all --seeds=3 \
        --output=runs/spread [--batch_sizes=16,32] [--learning_rates=5e-5,3e-5,2e-5] \
        [--epochs=2,3,4] [--plan] [--config.FIELD=VALUE ...]

Fine-tunes every point of the paper's grid on subsets of one GLUE task, the smaller ones
within the larger, with the same seeds; the seeds of a point train in one program. Shows
how far dev scores lie apart over the grid, beside how far seeds do at one point of it.
--size, --init_from and --config.FIELD=VALUE are those of experiments.paper.glue. The
same command goes on where it stopped. docs/paper.md says how to read it.
"""

import argparse
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from bert_jax.config import configuration
from bert_jax.convert import weights
from bert_jax.data.columns import BY_NAME
from bert_jax.data.lines import read_lines
from bert_jax.errors import UserError
from bert_jax.runtime.storage import write_atomically
from bert_jax.tasks.glue.data import TASKS
from experiments.claims import spread_report
from experiments.claims.spread_report import Point
from experiments.lib import by_size, command_line, ending, execution, report, running
from experiments.lib.runs import Run, digest
from experiments.paper import glue


@ending.command
def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    options, fields = parse(argv)
    texts = subsets(options)
    runs = plan(options, fields, texts)

    def write() -> None:
        for folder, files in texts.values():
            for name, text in files.items():
                if not (folder / name).exists():
                    write_atomically(folder / name, text)

    def said(_: object) -> str:
        points = list(dict.fromkeys(point for _, point in runs))
        found = {
            count: np.stack([scores(options.task, runs[count, p]) for p in points])
            for count in texts
        }
        facts = report.facts("experiments.claims.grid_spread", argv)
        return spread_report.write(options, points, found, facts)

    needs = ("matplotlib", "report", "the plots need matplotlib")
    return execution.finish(
        list(runs.values()), options, said, before=write, needs=needs
    )


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the fields of all runs; glue.parse checks what is the grid's.

    Raises:
      UserError: see `glue.parse`; no subsets can be drawn of the task.
    """
    parser = command_line.Parser("experiments.claims.grid_spread", __doc__)
    parser.add_argument("--data", required=True, help="GLUE's folder")
    parser.add_argument("--task", default="sst2")
    parser.add_argument("--examples", default="500,2000,8000,32000,all")
    numbers = command_line.several(float)
    parser.add_argument(
        "--batch_sizes", default="16,32", type=command_line.several(int)
    )
    parser.add_argument("--seeds", default=3, type=int, help="at each point")
    parser.add_run_options("runs/grid_spread")
    parser.add_argument("--learning_rates", default="5e-5,3e-5,2e-5", type=numbers)
    parser.add_argument("--epochs", default="2,3,4", type=numbers)
    own, rest = parser.parse_known_args(argv)
    of_grid, fields = glue.parse([f"--data={own.data}", f"--tasks={own.task}", *rest])
    if of_grid.tasks != [own.task]:
        raise UserError("--tasks: one task, by --task")
    for field in fields:
        if field.startswith("--config.train.batch_size="):
            raise UserError(f"{field}: the grid sets it; see --batch_sizes")
    if own.data.startswith(BY_NAME):
        raise UserError(f"--data={own.data}: a folder is required, to draw from")
    if own.task == "cola" or not TASKS[own.task].labels:
        raise UserError(
            f"--task={own.task}: take a task with classes and named columns, such as "
            "sst2, qqp, mnli, qnli, mrpc or rte"
        )
    if own.seeds < 3:
        raise UserError(
            f"--seeds={own.seeds}: at least 3, to tell the grid's spread from theirs"
        )
    own.size, own.init_from = of_grid.size, of_grid.init_from
    spec = f"{running.ROOT}/configs/finetune/glue.py:size={own.size},task={own.task}"
    configuration.load(spec, fields)
    if own.init_from:
        weights.check(own.init_from)
    if len(own.batch_sizes) * len(own.learning_rates) * len(own.epochs) < 2:
        raise UserError("the grid has one point; name more rates, epochs or batches")
    return own, fields


Files = Mapping[str, str]


def subsets(options: argparse.Namespace) -> dict[int, tuple[Path, Files]]:
    """Of each number of examples: a folder, and the files that it gets."""
    task = TASKS[options.task]
    place = Path(glue.data_dir(options.data, options.task))
    path = next((p for p in sorted(place.glob("train.tsv*"))), place / "train.tsv")
    header, *lines = [line for _, line in read_lines(path)]
    columns = header.split("\t")
    if task.label not in columns:
        raise UserError(f"{path}:1: no column {task.label!r}; there are {columns}")
    rows, labels = [], []
    for line in lines:
        cells = line.split("\t")
        if len(cells) == len(columns):  # GLUE has some lines that are broken
            label = cells[columns.index(task.label)]
            if label in task.labels:
                rows.append(line)
                labels.append(label)
    options.examples = by_size.sizes(options.examples, len(rows))
    order = by_size.nested(labels, seed=0)
    dev = {
        p.name.removesuffix(".gz"): "".join(f"{line}\n" for _, line in read_lines(p))
        for p in sorted(place.glob("dev*.tsv*"))
    }
    name = digest(header, *rows, *dev.values())
    found: dict[int, tuple[Path, Files]] = {}
    for count in options.examples:
        chosen = "".join(f"{rows[index]}\n" for index in order[:count])
        folder = options.output / "data" / f"{name}-{count}" / task.title
        found[count] = (folder, {**dev, "train.tsv": f"{header}\n{chosen}"})
    return found


def plan(
    options: argparse.Namespace,
    fields: Sequence[str],
    texts: Mapping[int, tuple[Path, Files]],
) -> dict[tuple[int, Point], Run]:
    """The runs, by number of examples and point of the grid."""
    runs = {}
    axes = (options.batch_sizes, options.learning_rates, options.epochs)
    points = list(itertools.product(*axes))
    for count, (folder, _) in texts.items():
        given = argparse.Namespace(**{**vars(options), "data": str(folder.parent)})
        for batch, rate, epochs in points:
            run = glue.Point(options.task, rate, epochs, 0)
            own = (
                *glue.arguments(run, given, fields),
                f"--config.train.batch_size={batch}",
                f"--config.train.seeds={options.seeds}",
                "--config.train.eval_every_epoch=False",
            )
            shape = [x for x in own if not x.startswith("--config.task.data_dir=")]
            name = digest(folder.parent.name, options.size, *shape[1:])
            place = run.folder(options.output / f"{count}")
            place = place.with_name(f"batch{batch}-{place.name}-{name}")
            runs[count, (batch, rate, epochs)] = Run(
                f"{count} examples", place, own, options.size
            )
    return runs


def scores(task: str, run: Run) -> Float[np.ndarray, "seeds"]:
    """The task's main score of each seed on dev, in percent."""
    name = TASKS[task].main_score
    logs = run.log("dev", [name]).values()
    return np.array([100 * lines[-1][name] for lines in logs])


if __name__ == "__main__":
    ending.start(main)
