"""The paper's tables and figure, each by one command, at any size.

    python -m experiments.paper TABLE --size=tiny --data=FOLDER [--corpus=SOURCES] \
        [--tasks=sst2,mrpc] [--seeds=5] [--output=runs/paper] [--plan] \
        [--config.FIELD=VALUE ...] [--finetuning.FIELD=VALUE ...]

TABLE is table1 ... table8, figure5, squad, features or imdb. It pre-trains what the
table compares, fine-tunes it with several seeds, and writes OUTPUT/TABLE-SIZE/
report.html, report.txt and results.json: our scores beside the paper's, and whether
each of its claims is reproduced, contradicted or undecided. The same command goes on
where it stopped; --plan only shows what is done and what remains. docs/paper.md says
more.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bert_jax.runtime.storage import write_atomically
from experiments.lib import command_line, ending, execution, progress, runs
from experiments.paper import results, text
from experiments.paper.options import Options, parse


def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    stopped = "stopped; the same command goes on there"
    return ending.status(lambda: _main(argv), stopped)


def _main(argv: Sequence[str]) -> int:
    options = parse(argv)
    planned = runs.plan(options)
    execution.check(planned)
    print(progress.overview(planned), flush=True)
    for name, why in options.missing.items():
        print(f"left out: {name}: {why}", flush=True)
    if options.plan:
        return 0
    command_line.require("matplotlib", "report", "the report's plots need matplotlib")
    if runs.VECTORS in (run.program for run in planned):
        command_line.require("gensim", "senses", "word vectors need gensim")
    with execution.alone(options.output) as lock:
        return _finish(options, planned, lock)


def _finish(options: Options, planned: Sequence[runs.Run], lock: int) -> int:
    """Runs, reports, and gives the exit status."""
    errors: dict[Path, str] = {}
    status = execution.run_all(planned, errors, lock)
    found = results.collect(options, planned, errors)
    paths = _write(options, found)
    print(text.report(found))
    for path in paths:
        print(f"written: {path}")
    if status:
        print("stopped; the same command goes on there", file=sys.stderr)
    elif errors:
        print(
            f"error: {len(errors)} of {len(planned)} runs failed (above, and in the "
            "report); the same command tries them again",
            file=sys.stderr,
        )
        status = 2
    return status


def _write(options: Options, found: results.Results) -> list[Path]:
    """Writes report.html, report.txt and results.json; returns their paths."""
    from experiments.paper import page  # needs matplotlib

    name = f"{options.table.name}-{options.size}"
    if options.weights:
        name += f"-{runs.digest(*options.weights)}"
    folder = options.output / name
    contents = {
        "results.json": json.dumps(results.plain(found), indent=1) + "\n",
        "report.txt": text.report(found) + "\n",
        "report.html": page.page(found),
    }
    for name, content in contents.items():
        write_atomically(folder / name, content)
    return [folder / name for name in contents]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
