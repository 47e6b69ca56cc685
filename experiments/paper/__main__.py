"""The paper's tables and figure, each by one command, at any size.

    python -m experiments.paper TABLE --size=tiny --data=FOLDER [--corpus=SOURCES] \
        [--tasks=sst2,mrpc] [--seeds=5] [--output=runs/paper] [--plan] \
        [--config.FIELD=VALUE ...] [--finetuning.FIELD=VALUE ...]

TABLE is table1 ... table8, figure5, features or imdb. It pre-trains what the
table compares, fine-tunes it with several seeds, and writes OUTPUT/TABLE-SIZE/
report.md, its plots and results.json: our scores beside the paper's, and whether each
of its claims is reproduced, contradicted or undecided. The same command goes on where
it stopped; --plan only shows what is done and what remains. docs/paper.md says more.
"""

import sys
from collections.abc import Sequence

from experiments.lib import command_line, report, runner
from experiments.paper import results, runs, text
from experiments.paper.options import Options, parse


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    options = parse(argv, __doc__)
    planned = runs.plan(options)
    for name, why in options.missing.items():
        print(f"left out: {name}: {why}", flush=True)
    if options.table.axis and not options.plan:
        command_line.require("matplotlib", "report", "the plot needs matplotlib")
    return runner.finish(
        *(planned, options),
        lambda errors: _write(options, results.collect(options, planned, errors)),
        partial=True,
    )


def _write(options: Options, found: results.Results) -> str:
    """Writes the report and results.json; returns the text."""
    name = f"{options.table.name}-{options.size}"
    if options.weights:
        name += f"-{runner.digest(*options.weights)}"
    folder = options.output / name
    facts = report.facts("experiments.paper", sys.argv[1:])
    sections = text.sections(found, report.introduction(facts))
    return report.write(folder, sections, {**facts, **results.plain(found)})


if __name__ == "__main__":
    command_line.start(main)
