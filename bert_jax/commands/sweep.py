"""Config files against each other, and grids over their fields.

    python -m bert_jax sweep --config=configs/tiny.py \
        --grid=optimizer.learning_rate=1e-3,3e-4 --grid=seed=0,1,2 \
        --config.train.num_steps=200 --config.train.eval_every=50
    python -m bert_jax sweep --config=focal.py --config=span.py \
        --config=plain.py --grid=seed=0,1,2 --together --output=runs/losses
    python -m bert_jax sweep --config=configs/finetune/text.py --trials=20 \
        --grid=optimizer.learning_rate=1e-5..1e-3 --grid=train.num_epochs=2,3,4 \
        --config.init_from=FOLDER --config.task.train_file=train.csv

All combinations of the files and the grids' values run one after the other, each as
bert_jax.main in its own folder. The same command resumes. With --together the seeds of
a combination, which must be consecutive, train in one program: faster for small models.
The code of a config file that defines something new, or imports or extends one that
does, is part of its runs' names: after a change they are others. OUTPUT/report.md
compares the scores on dev over the seeds.
With --trials Optuna chooses the settings (the extra `search`): LOW..HIGH is a range of
numbers, logarithmic if HIGH is ten times LOW or more, and A,B,... are choices.
"""

import argparse
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.commands import command_line, compare, report, runner
from bert_jax.commands.runner import Run, digest
from bert_jax.config import configuration, files
from bert_jax.errors import UserError, escape_controls
from bert_jax.tasks.task import lower_is_better

SEED = "seed"
# Values between commas. Commas inside of quotes and brackets separate nothing.
_VALUES = re.compile(r"""(?:'[^']*'|"[^"]*"|\([^)]*\)|\[[^]]*\]|[^,])+""")
SCORE = (
    "default: evaluate.score, else f1 of ner and squad, masked_lm_loss of "
    "pre-training, or the first"
)


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    options, fields = parse(argv)
    if not options.plan:
        command_line.require("matplotlib", "report", "the figures need matplotlib")
    if options.trials:
        return search(options, fields)
    runs = relabel(plan(options, fields), options.labels)
    return runner.finish(
        list(runs), options, lambda _: write_report(options, runs), partial=True
    )


def relabel(runs: dict[Run, str], labels: Sequence[str]) -> dict[Run, str]:
    """Returns the runs with labels for their settings' names, if there are any.

    Raises:
      UserError: There are more or fewer labels than settings.
    """
    names = [*dict.fromkeys(runs.values())]
    if labels and len(labels) != len(names):
        count = f"{len(labels)} for {len(names)} settings"
        raise UserError(f"--labels: {count}, in this order: {'; '.join(names)}")
    chosen = dict(zip(names, labels or names, strict=True))
    return {run: chosen[name] for run, name in runs.items()}


def write_report(options: argparse.Namespace, runs: Mapping[Run, str]) -> str:
    """Writes the report of the runs that have ended, and returns the text to print."""
    ended = [(name, run) for run, name in runs.items() if run.is_done]
    if not ended:
        return "no run has ended"
    found, score = compare.settings(ended, options.score)
    table = compare.comparison_table(found, score)
    sections = [report.Section("", [table, *compare.figures(found, score)])]
    results = compare.plain(found, score)
    return escape_controls(report.write_report(options.output, sections, results))


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Returns the options (`grid`: values by field), and the fields of all runs.

    Raises:
      UserError: An option does not exist, a field is given twice, or seeds cannot train
        together.
    """
    parser = command_line.Parser("bert_jax sweep", __doc__)
    parser.add_argument(
        "--config", required=True, action="append", help="a file; may be repeated"
    )
    parser.add_argument(
        "--grid", default=[], action="append", help="FIELD=A,B,...; may be repeated"
    )
    parser.add_argument("--trials", default=0, type=int, help="settings to search")
    parser.add_argument("--score", default="", help=SCORE)
    labels = command_line.several(str)
    parser.add_argument(
        "--labels", default=[], type=labels, help="of the settings, in the grid's order"
    )
    parser.add_argument("--together", action="store_true", help="seeds in one program")
    parser.add_run_options("runs/sweep")
    options, fields = command_line.with_fields(parser, argv, ("train.seeds",))
    grid: dict[str, list[str]] = {}
    for text in options.grid:
        field, equals, values = text.partition("=")
        if not (equals and values) or field in grid:
            raise UserError(f"--grid={text}: write FIELD=A,B,..., each field once")
        grid[field] = _VALUES.findall(values)
        if len(set(grid[field])) < len(grid[field]):
            raise UserError(f"--grid={text}: names a value twice")
        if (ends := range_of(grid[field])) and float(ends[0]) >= float(ends[1]):
            raise UserError(f"--grid={text}: must be LOW..HIGH, the lower end first")
        if ends and not options.trials:
            raise UserError(
                f"--grid={text}: a range needs --trials=N, or write A,B,..."
            )
    options.grid = grid
    if len({*options.config}) < len(options.config):
        raise UserError("--config: names a config file twice")
    if len(options.config) == 1 and not (grid or options.trials):
        raise UserError("one run: name a --grid=FIELD=A,B,... or another --config=FILE")
    if options.trials:
        command_line.check_counts(options, "trials")
        if len(options.config) > 1 or not {*grid} - {SEED} or options.labels:
            needs = "needs one --config and a --grid to search, and takes no --labels"
            raise UserError(f"--trials: {needs}")
    for text in fields:
        if (field := configuration.field_of(text)) in grid:
            raise UserError(f"{text}: the grid sets {field}")
    if options.together:
        given = grid.get(SEED, ["none"])
        first = int(given[0]) if re.fullmatch("[0-9]{1,9}", given[0]) else 0
        if len(given) < 2 or given != [str(first + n) for n in range(len(given))]:
            raise UserError(
                "--together: --grid=seed=... must be consecutive, such as seed=0,1,2"
            )
    return options, fields


def range_of(values: Sequence[str]) -> list[str] | None:
    """Returns the ends of a grid's only value LOW..HIGH, or None if it is no range."""
    ends = values[0].split("..")
    try:
        is_range = len(values) == 1 and all(math.isfinite(float(x)) for x in ends)
    except ValueError:
        return None
    return ends if is_range and len(ends) == 2 else None


def plan(
    options: argparse.Namespace,
    fields: Sequence[str],
    grid: Mapping[str, Sequence[str]] | None = None,
) -> dict[Run, str]:
    """Returns the runs, their configs checked, each with the name of its setting.

    Args:
      grid: Values by field. None means those of `options`.

    Raises:
      UserError: The config does not allow a field or value.
    """
    grid = dict(options.grid if grid is None else grid)
    seeds = grid.pop(SEED) if options.together else []
    names, runs = {spec: files.config_name(spec) for spec in options.config}, {}
    if len({*names.values()}) < len(names):  # short ones do not differ
        names = {spec: spec for spec in names}
    for spec, *values in itertools.product(options.config, *grid.values()):
        point = dict(zip(grid, values, strict=True))
        given = [f"--config.{field}={value}" for field, value in point.items()]
        if seeds:
            given += [f"--config.seed={seeds[0]}", f"--config.train.seeds={len(seeds)}"]
        arguments = (f"--config={spec}", *fields, *given)
        whole = runner.identify(spec, arguments[1:])
        parts = [f"{f.split('.')[-1]}={v}" for f, v in point.items()]
        if len(options.config) > 1:
            parts.insert(0, files.config_name(spec))
        name = ",".join(parts)
        safe = "".join(c if c.isalnum() or c in "=,.-_" else "_" for c in name)[:80]
        # A file's name has at most 255 bytes, and those next to the folder are longer.
        safe = safe.encode()[:200].decode(errors="ignore")
        folder = options.output / f"{safe or 'seeds'}-{digest(*arguments, whole)}"
        setting = {f: v for f, v in point.items() if f != SEED}
        if len(names) > 1 or not setting:
            setting = {"config": names[spec], **setting}
        said = " ".join(f"{field}={value}" for field, value in setting.items())
        runs[Run("run", folder, arguments)] = said
    return runs


def search(options: argparse.Namespace, fields: Sequence[str]) -> int:
    """Runs `options.trials` trials, prints the report and returns the exit status.

    Optuna's sampler is seeded and sees the scores of all earlier trials. So the same
    command repeats the trials that have ended, without training them, and continues.
    """
    command_line.require("optuna", "search", "--trials needs Optuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    runs, status = dict[Run, str](), 0
    for number in range(1, options.trials + 1):
        trial = study.ask()
        grid = {f: _suggest(trial, f, values) for f, values in options.grid.items()}
        of_trial = plan(options, fields, grid)
        runs |= of_trial
        if options.plan and not all(run.is_done for run in of_trial):
            return runner.finish([*runs], options, str)
        title = f"trial {number} of {options.trials}: {[*of_trial.values()][-1]}"
        ended = runner.finish([*of_trial], options, lambda _: title)  # noqa: B023
        status = max(status, ended)
        if ended > 128:  # stopped by a signal
            break
        # Optuna notes a trial without a finite score as failed.
        study.tell(trial, math.nan if ended else _loss(of_trial, options.score))
    print(write_report(options, runs))
    return status


def _suggest(trial: Any, field: str, values: Sequence[str]) -> list[str]:
    """Returns the trial's value of a field, or all seeds."""
    if field == SEED:
        return [*values]
    if not (ends := range_of(values)):
        return [trial.suggest_categorical(field, values)]
    low, high = map(float, ends)
    is_log = 0 < low <= high / 10
    if all(end.isdecimal() for end in ends):
        return [str(trial.suggest_int(field, int(low), int(high), log=is_log))]
    return [f"{trial.suggest_float(field, low, high, log=is_log):.3g}"]


def _loss(runs: Mapping[Run, str], asked: str) -> float:
    """Returns the mean score of a trial's runs, negative if higher is better."""
    (setting,), score = compare.settings(((name, x) for x, name in runs.items()), asked)
    return setting.mean if lower_is_better(score) else -setting.mean
