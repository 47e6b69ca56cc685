"""Config files against each other, and grids over their fields.

    python -m experiments.sweeps.sweep --config=configs/tiny.py \
        --grid=optimizer.learning_rate=1e-3,3e-4 --grid=seed=0,1,2 \
        --config.train.num_steps=200 --config.train.eval_every=50
    python -m experiments.sweeps.sweep --config=focal.py --config=span.py \
        --config=plain.py --grid=seed=0,1,2 --together --output=runs/losses

All combinations of the files and the grids' values run one after the other, each as
bert_jax.main in its own folder. The same command resumes. With --together the seeds of
a combination, which must be consecutive, train in one program: faster for small models.
A config file that defines something new is part of its runs' names: after a change of
its text they are others. OUTPUT/report.md compares the scores on dev over the seeds.
"""

import argparse
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path

from bert_jax import registry
from bert_jax.config import configuration, files
from bert_jax.errors import UserError, printable
from experiments.lib import command_line, ending, report, runner
from experiments.lib.runner import Run, digest
from experiments.sweeps import comparison

_SEED = "seed"
# Values between commas; those inside of quotes and brackets separate nothing.
_VALUES = re.compile(r"""(?:'[^']*'|"[^"]*"|\([^)]*\)|\[[^]]*\]|[^,])+""")


@ending.command
def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    options, fields = parse(argv)
    runs = plan(options, fields)

    def said(_: object) -> str:
        ended = [(name, run) for run, name in runs.items() if run.is_done]
        if not ended:
            return "no run has ended"
        found, score = comparison.settings(ended, options.score)
        sections = [report.Section("", [comparison.table(found, score)])]
        results = comparison.plain(found, score)
        return printable(report.write(options.output, sections, results))

    return runner.finish(list(runs), options, said, partial=True)


def _names(specs: Sequence[str]) -> dict[str, str]:
    """The config files' names in the table: short ones, where these differ."""
    names = {spec: files.name(spec) for spec in specs}
    return names if len({*names.values()}) == len(names) else {s: s for s in specs}


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options (`grid`: values by field), and the fields of all runs.

    Raises:
      UserError: an option that does not exist; a field twice; seeds that cannot train
        together.
    """
    parser = command_line.Parser("experiments.sweeps.sweep", __doc__)
    parser.add_argument(
        "--config", required=True, action="append", help="a file; may be repeated"
    )
    parser.add_argument(
        "--grid", default=[], action="append", help="FIELD=A,B,...; may be repeated"
    )
    parser.add_argument("--score", default="", help=comparison.SCORE)
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
    options.grid = grid
    if len({*options.config}) < len(options.config):
        raise UserError("--config: names a config file twice")
    if len(options.config) == 1 and not grid:
        raise UserError("one run: name a --grid=FIELD=A,B,... or another --config=FILE")
    for text in fields:
        if (field := configuration.field_of(text)) in grid:
            raise UserError(f"{text}: the grid sets {field}")
    if options.together:
        given = grid.get(_SEED, [])
        # isdigit() is true of "²", which int() refuses.
        seeds = [int(x) for x in given if x.isdecimal() and len(x) < 10]
        if len(seeds) < max(2, len(given)) or seeds != [
            *range(seeds[0], seeds[0] + len(seeds))
        ]:
            raise UserError(
                "--together: --grid=seed=... must be consecutive, such as seed=0,1,2"
            )
    return options, fields


def plan(options: argparse.Namespace, fields: Sequence[str]) -> dict[Run, str]:
    """The runs, their configs checked, each with the name of its setting.

    Raises:
      UserError: a field or value that the config does not allow.
    """
    grid = dict(options.grid)
    seeds = grid.pop(_SEED) if options.together else []
    names, runs = _names(options.config), {}
    for spec, *values in itertools.product(options.config, *grid.values()):
        point = dict(zip(grid, values, strict=True))
        given = [f"--config.{field}={value}" for field, value in point.items()]
        if seeds:
            given += [f"--config.seed={seeds[0]}", f"--config.train.seeds={len(seeds)}"]
        arguments = (f"--config={spec}", *fields, *given)
        config = configuration.load(spec, list(arguments[1:]))
        whole = json.dumps(config.to_dict(), sort_keys=True)  # the file may change
        if spec in registry.ADDED.values():  # what it defines too
            whole += Path(spec.partition(":")[0]).read_text()
        parts = [f"{f.split('.')[-1]}={v}" for f, v in point.items()]
        if len(options.config) > 1:
            parts.insert(0, files.name(spec))
        name = ",".join(parts)
        safe = "".join(c if c.isalnum() or c in "=,.-_" else "_" for c in name)[:80]
        # A file's name has at most 255 bytes, and those beside the folder are longer.
        safe = safe.encode()[:200].decode(errors="ignore")
        folder = options.output / f"{safe or 'seeds'}-{digest(*arguments, whole)}"
        setting = {f: v for f, v in point.items() if f != _SEED}
        if len(names) > 1 or not setting:
            setting = {"config": names[spec], **setting}
        said = " ".join(f"{field}={value}" for field, value in setting.items())
        runs[Run("run", folder, arguments)] = said
    return runs


if __name__ == "__main__":
    ending.start(main)
