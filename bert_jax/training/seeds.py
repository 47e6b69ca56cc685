"""Several seeds in one program: everything that a seed changes gets a first axis."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Int
from ml_collections import ConfigDict

from bert_jax.config import fields
from bert_jax.data.rows import RowIndex
from bert_jax.errors import UserError
from bert_jax.runtime import processes
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Batch, Task
from bert_jax.types import Arrays
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.checkpoint import Checkpoints


class Seeds:
    """The seeds of a run: with one, arrays keep their shapes. Several are stacked."""

    def __init__(self, config: ConfigDict, count: int = 0):
        """Uses the seeds `config.seed`, `config.seed + 1`, ...

        Args:
          count: Number of seeds. 0 means `config.train.seeds`.

        Raises:
          UserError: The config sets a field that only works with one seed.
        """
        self.count = count or config.train.seeds
        self.numbers = range(config.seed, config.seed + self.count)
        takes_best = config.evaluate.checkpoint == "best"
        if self.count > 1 and (config.train.early_stop or takes_best):
            raise UserError(
                f"config.train.seeds={self.count}: not with config.train.early_stop or "
                "evaluate.checkpoint=best, which are for a single seed"
            )

    @property
    def array(self) -> Int[np.ndarray, "*seeds"]:
        """Returns the seeds, in the form that functions of `each` take."""
        numbers = np.asarray(self.numbers, np.int32)
        return numbers if self.count > 1 else numbers.reshape(())

    def each(self, function: Callable) -> Callable:
        """Turns a function of one seed's state into one of all seeds'."""
        return jax.vmap(function) if self.count > 1 else function

    def abstract(self, tree: Any) -> Any:
        """Turns shapes and shardings of one seed's arrays into those of all seeds'."""
        if self.count == 1:
            return tree
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                (self.count, *leaf.shape),
                leaf.dtype,
                sharding=NamedSharding(
                    leaf.sharding.mesh, PartitionSpec(None, *leaf.sharding.spec)
                ),
            ),
            tree,
        )

    def split(self, tree: Any) -> list[Any]:
        """Splits all seeds' arrays into one tree per seed."""
        if self.count == 1:
            return [tree]
        return [jax.tree.map(lambda x, i=i: x[i], tree) for i in range(self.count)]

    def floats(self, metrics: Arrays) -> list[dict[str, float]]:
        """Fetches all seeds' metrics. Returns a dict per seed."""
        fetched = self.split(jax.device_get(metrics))
        return [{name: float(x) for name, x in one.items()} for one in fetched]

    def batches(self, task: Task, step: int, rows: RowIndex) -> Iterator[Batch]:
        """Yields each seed's batches, padded to the longest and stacked."""
        streams = [task.batches(step, rows, seed) for seed in self.numbers]
        if self.count == 1:
            yield from streams[0]
        for batches in zip(*streams, strict=True):
            stacked = {}
            for name, first in batches[0].items():
                columns = [batch[name] for batch in batches]
                if first.ndim > 1:
                    whole = np.max([column.shape for column in columns], axis=0)
                    fill = task.padding.get(name, 0)
                    columns = [
                        np.pad(
                            x, [(0, n) for n in whole - x.shape], constant_values=fill
                        )
                        for x in columns
                    ]
                stacked[name] = np.stack(columns)
            yield stacked

    def folders(self, folder: Path) -> list[Path]:
        """Returns each seed's work directory, with the layout of a single run's."""
        if self.count == 1:
            return [folder]
        return [folder / f"seed_{number}" for number in self.numbers]

    def means(
        self, split: str, numbers: Sequence[Mapping[str, float]]
    ) -> dict[str, float]:
        """Returns the seeds' means, and scores' standard deviations, `<score>_std`."""
        if self.count == 1:
            return dict(numbers[0])
        means: dict[str, float] = {}
        for name in numbers[0]:
            values = [one[name] for one in numbers]
            means[name] = float(np.mean(values))
            if split != "train":
                means[f"{name}_std"] = float(np.std(values, ddof=1))
        return means

    def close(
        self,
        task: Task,
        data: Mapping[str, Any],
        folder: Path,
        state: Any,
        now: int,
    ) -> None:
        """Writes each seed's folder as a single run would.

        Args:
          data: The `record` of its data.
          state: The `TrainState` of all seeds.
        """
        if self.count == 1:
            return
        states = zip(self.numbers, self.folders(folder), self.split(state), strict=True)
        for number, path, seed_state in states:
            config = fields.with_values(task.config, {"seed": number, "train.seeds": 1})
            first = processes.is_first()
            with processes.wait_for_first():
                workdir.claim_folder(path, config, task.tokenizer, data, write=first)
            with Checkpoints(path, 1) as checkpoints:
                checkpoints.save(seed_state.items(), now)
