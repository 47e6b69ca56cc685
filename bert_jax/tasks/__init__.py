"""Tasks: data -> features, head, losses, scores, predictions. One file per family."""

import importlib
from collections import UserDict
from collections.abc import Callable
from typing import Any

from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.data.glue import TASKS as GLUE
from bert_jax.errors import UserError
from bert_jax.tasks.task import Task

Make = Callable[[ConfigDict, Tokenizer | None], Task]


class _Tasks(UserDict[str, Any]):
    """Classes by name; one of ours, MODULE.CLASS, is imported when it is asked for."""

    def __getitem__(self, name: str) -> Make:
        found = super().__getitem__(name)
        if isinstance(found, str):
            module, _, kind = found.partition(".")
            found = getattr(importlib.import_module(f"{__name__}.{module}"), kind)
        return found


# Your own config file adds a class: TASKS["questions"] = Questions.
TASKS = _Tasks(
    {
        "pretraining": "pretraining.Pretraining",
        "elmo": "elmo.Elmo",
        **dict.fromkeys(GLUE, "glue.Glue"),
        "squad": "squad.Squad",
        "swag": "swag.Swag",
        "ner": "ner.Ner",
        "text": "text.Text",
        "imdb": "text.Imdb",
    }
)


def create(config: ConfigDict, tokenizer: Tokenizer | None = None) -> Task:
    """The task that `config.task.name` names.

    Args:
      tokenizer: None: uses the config's (`tokenization.of_config`).

    Raises:
      UserError: no task has that name, or its config is wrong.
    """
    if config.task.name not in TASKS:
        raise UserError(
            f"config.task.name={config.task.name!r}: choose one of {', '.join(TASKS)}"
        )
    found: Any = TASKS[config.task.name]
    if config.model.architecture in ("gpt", "elmo"):
        found = _of_architecture(config, found)
    task = found(config, tokenizer)
    if config.task.get("texts_per_row", 1) > 1:
        from bert_jax.tasks.classification import Classification

        if not isinstance(task, Classification):
            raise UserError(
                f"config.task.texts_per_row={config.task.texts_per_row}: this task is "
                "no classification of texts; leave it 1"
            )
    return task


def _of_architecture(config: ConfigDict, task: Any) -> Any:
    """A task as a GPT or an ELMo does it."""
    from bert_jax.tasks import elmo_tasks, gpt
    from bert_jax.tasks.elmo import Elmo
    from bert_jax.tasks.pretraining import Pretraining

    if config.model.architecture == "gpt" and task is not Pretraining:
        return gpt.of(config.task.name, task)
    if config.model.architecture == "elmo" and task is not Elmo:
        return elmo_tasks.of(config.task.name, task)
    return task
