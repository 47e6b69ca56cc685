"""Exact evaluation on the devices, for every task."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.runtime import signals
from bert_jax.runtime.clock import Stopwatch
from bert_jax.tasks.task import Results, Task
from bert_jax.training import inference, sharding
from bert_jax.training.seeds import Seeds


def require_score(task: Task, mesh: Mesh, params: Any) -> None:
    """Scores outputs of zeros on dev, to know which scores the task reports.

    Args:
      params: Shapes of the parameters. Nothing is computed on the devices.

    Raises:
      UserError: `config.evaluate.score` is not among them.
    """
    if not task.config.evaluate.score:
        return
    split, known, fetched = task.dev_splits[0], dict[tuple, Any](), []
    step = task.config.train.num_steps
    for batch in task.evaluation_batches(split, step, slice(None)):
        shapes = tuple((name, rows.shape) for name, rows in batch.items())
        if shapes not in known:
            with sharding.activate_mesh(mesh):
                known[shapes] = jax.eval_shape(task.outputs, params, batch)
        fetched.append(
            jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), known[shapes])
        )
    facts = dict(task.fitted)
    scores = task.results(split, fetched, learns=True).scores
    task.fitted = facts  # zeros have nothing to teach
    task.selection_value(scores)


class Evaluator:
    """Evaluation of parameters on a split, compiled once for each shape of a batch."""

    def __init__(
        self,
        task: Task,
        seeds: Seeds,
        mesh: Mesh,
        clock: Stopwatch,
        *,
        learns: bool = True,
    ):
        """Stores its arguments. Compiles nothing yet.

        Args:
          learns: Whether the first dev split's outputs set `task.facts`.
        """
        self.task, self.mesh, self.seeds, self.clock = task, mesh, seeds, clock
        self._learns = learns
        self._compiled = inference.Compiled(task.outputs, mesh)
        self._kept: tuple[int, dict[str, list[Results]]] = (-1, {})
        self._facts = [dict(task.fitted) for _ in seeds.numbers]

    def results(self, params: Any, split: str, now: int) -> Iterator[Results]:
        """Yields each seed's results on a split. Caches those of the last `now`.

        `task.facts` belong to the seed last yielded: writing its files may need them.

        Raises:
          Interrupted: A signal arrived. Raised between two batches.
        """
        if self._kept[0] != now:
            self._kept = (now, {})
        kept = self._kept[1].setdefault(split, [])
        learns = self._learns and split in self.task.dev_splits[:1]
        for seed, one in enumerate(self.seeds.split(params)):
            self.task.fitted = self._facts[seed]
            if seed == len(kept):
                fetched = self.fetch(one, split, now)
                with self.clock("evaluation"):
                    kept.append(self.task.results(split, fetched, learns=learns))
            yield kept[seed]

    def fetch(self, params: Any, split: str, now: int) -> list[Any]:
        """Returns the outputs of all batches of a split, for one seed's parameters."""
        size = self.task.config.evaluate.batch_size
        rows = sharding.local_rows(self.mesh, size)
        fetched: list[Any] = []
        ahead: Any = None
        for batch in self.task.evaluation_batches(split, now, rows):
            placed = sharding.place_batch(batch, self.mesh, size)
            with self.clock("compile"):
                program = self._compiled.program(params, placed)
            with self.clock("evaluation"):
                # Fetches the previous batch's outputs while this one is computed.
                outputs = program(params, placed)
                if ahead is not None:
                    fetched.append(jax.device_get(ahead))
                ahead = outputs
            signals.raise_if_interrupted()
        with self.clock("evaluation"):
            fetched.append(jax.device_get(ahead))
        return fetched
