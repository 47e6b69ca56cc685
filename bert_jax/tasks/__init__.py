"""Tasks: data -> features, head, losses, scores, predictions. One file per family."""

import importlib
from collections import UserDict
from typing import Any

from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.data.glue import TASKS as GLUE
from bert_jax.errors import UserError
from bert_jax.tasks.task import Task


class _Registry(UserDict[str, Any]):
    """Values by name; one of ours, MODULE.NAME, is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        if isinstance(found, str):
            module, _, value = found.partition(".")
            found = getattr(importlib.import_module(f"{__name__}.{module}"), value)
        return found


# Classes, or functions of (config, tokenizer). Your own config file adds one:
# TASKS["questions"] = Questions.
TASKS = _Registry(
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
# How a `config.model.architecture` other than BERT's does a task: a function of the
# task's name and class gives the class in its place. Your own config file adds one.
ARCHITECTURES = _Registry({"gpt": "gpt.of", "elmo": "elmo_tasks.of"})


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
    if config.model.architecture in ARCHITECTURES:
        found = ARCHITECTURES[config.model.architecture](config.task.name, found)
    task = found(config, tokenizer)
    if config.task.get("texts_per_row", 1) > 1:
        from bert_jax.tasks.classification import Classification

        if not isinstance(task, Classification):
            raise UserError(
                f"config.task.texts_per_row={config.task.texts_per_row}: this task is "
                "no classification of texts; leave it 1"
            )
    return task
