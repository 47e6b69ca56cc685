"""Tasks: data -> features, head, losses, scores, predictions. One file a family."""

from collections.abc import Callable

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.tasks.pretraining import Pretraining

TASKS: dict[str, Callable[[ConfigDict], Pretraining]] = {"pretraining": Pretraining}


def create(config: ConfigDict) -> Pretraining:
    """The task that `config.task.name` names.

    Raises:
      UserError: there is none of that name, or its config is wrong.
    """
    if config.task.name not in TASKS:
        raise UserError(
            f"config.task.name={config.task.name!r}: choose one of {', '.join(TASKS)}"
        )
    return TASKS[config.task.name](config)
