"""What a run prints and writes at its end."""

import contextlib
import functools
import io
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from jax.sharding import Mesh

from bert_jax.runtime import processes, storage, terminal
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Ask, Step
from bert_jax.training import sharding
from bert_jax.training.evaluator import Evaluator, asking
from bert_jax.training.seeds import RunLog
from bert_jax.workdir import folder as workdir


def close(
    evaluator: Evaluator, folder: Path, params: Any, now: int, log: RunLog
) -> Mapping[str, float]:
    """Prints every split's scores and writes its prediction files.

    Returns:
      The baseline's scores on the first dev split.
    """
    task, seeds = evaluator.task, evaluator.seeds
    folders = [path / "predictions" for path in seeds.folders(folder)]
    baseline: Mapping[str, float] = {}
    for split in task.splits:
        each = []
        for own, found in zip(
            folders, evaluator.results(params, split, now), strict=True
        ):
            each.append(found.scores)
            if processes.is_first():
                found.write(own)
                workdir.write_facts(own.parent, task.facts, now)
        if split in task.dev_splits[:1]:
            baseline = found.baseline
        if each[0]:
            means = seeds.means(split, each)
            if not log.has(now, split):
                log.write(now, split, each)
            if processes.is_first():
                print(f"\n{split} at step {now}")
                print(terminal.table(*found.table(split, means)))
                if seeds.count == 1 and (details := found.details()):
                    print(f"\n{details}")
    if processes.is_first():
        totals = evaluator.clock.totals()
        spent = [(name, f"{seconds:.1f}") for name, seconds in totals.items()]
        print("\n" + terminal.table(spent, ("time", "seconds")))
    for own, one in zip(folders, seeds.split(params), strict=True):
        with _unless_first_unseen(own) as place:
            run = functools.partial(_asking_few, params=one, mesh=evaluator.mesh)
            task.show(place, run)
    written = [str(own) for own in folders if own.is_dir()]
    if written and processes.is_first():
        print(f"\npredictions: {', '.join(written)}")
    return baseline


@contextlib.contextmanager
def _unless_first_unseen(folder: Path) -> Iterator[Path]:
    """Yields process 0 the folder; the others, which must take part in the computation,
    a temporary folder, with standard output discarded."""
    if processes.is_first():
        yield folder
        return
    with (
        tempfile.TemporaryDirectory() as gone,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        yield storage.path(gone)


def one_line(now: int, split: str, numbers: dict[str, float]) -> str:
    """An evaluation for the progress log."""
    shown = (f"{name} {value:.4g}" for name, value in numbers.items())
    return f"step {now} {split}: {', '.join(shown)}"


def _asking_few(function: Step, params: Any, mesh: Mesh) -> Ask:
    return asking(function, params, mesh, sharding.batch_multiple(mesh, 4))
