"""What a run is made of, before it writes to its folder."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from bert_jax.errors import UserError
from bert_jax.runtime import processes
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import Data, Task
from bert_jax.training import (
    compilation,
    evaluator,
    memory,
    setup,
    sharding,
)
from bert_jax.training import optimizer as optimizers
from bert_jax.training.history import BestScore, require_dev
from bert_jax.workdir import folder as workdir
from bert_jax.workdir.checkpoint import has_checkpoint


class RunSetup(NamedTuple):
    """Everything that the config and the folder decide."""

    task: Task
    folder: Path
    program: compilation.Program
    learning_rates: Float[np.ndarray, " steps"]
    data: Data
    weights: tuple[Any, Any] | None  # of a new run with `init_from`: `init_weights`
    steps_before: int  # train.num_steps of the run in the folder, see `workdir.check`


def build(task: Task, folder: Path, first_seed: int) -> RunSetup:
    """Prepares the data, if that is not done; all processes call it together.

    Args:
      task: its config is resolved.
      folder: the work directory.
      first_seed: the first of `config.train.seeds`.

    Raises:
      UserError: what the user can fix.
    """
    config = task.config
    mesh = sharding.make_mesh(config)
    # memory.require
    program = compilation.Program(task, mesh, first_seed)
    learning_rates = optimizers.learning_rates(config)
    steps_before = workdir.check(folder, config)
    is_new = not has_checkpoint(folder)
    weights = setup.init_weights(task, program.abstract.params) if is_new else None
    task.recall(workdir.read_data(folder))
    with processes.first_alone():
        data = task.training_data()
        require_dev(task)
        evaluator.require_score(task, mesh, program.abstract.params)
    processes.check_same("the prepared data", data.record)
    if not is_new and steps_before < config.train.num_steps:
        _require_growth(task, folder)
    return RunSetup(task, folder, program, learning_rates, data, weights, steps_before)


def _require_growth(task: Task, folder: Path) -> None:
    """Raises UserError if the dev scores of a run that is to grow no longer do."""
    if BestScore(task, folder, task.dev_splits[:1]).stops(task.config.train.early_stop):
        raise UserError(
            f"config.train.extend=True: the run in {folder} stopped early, because its "
            "dev scores no longer improved, and would again; to train on, start "
            f"another --workdir from it: --config.init_from={folder}"
        )
