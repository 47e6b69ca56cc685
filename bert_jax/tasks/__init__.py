"""Tasks: data -> features, head, losses, scores, predictions. One file per family."""

from collections.abc import Callable

from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.data.glue import TASKS as GLUE
from bert_jax.errors import UserError
from bert_jax.tasks import elmo_tasks, gpt
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.elmo import Elmo
from bert_jax.tasks.glue import Glue
from bert_jax.tasks.ner import Ner
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.squad import Squad
from bert_jax.tasks.swag import Swag
from bert_jax.tasks.task import Task
from bert_jax.tasks.text import Imdb, Text

TASKS: dict[str, Callable[[ConfigDict, Tokenizer | None], Task]] = {
    "pretraining": Pretraining,
    "elmo": Elmo,
    **dict.fromkeys(GLUE, Glue),
    "squad": Squad,
    "swag": Swag,
    "ner": Ner,
    "text": Text,
    "imdb": Imdb,
}


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
    found = TASKS[config.task.name]
    if config.model.architecture == "gpt" and found is not Pretraining:
        found = gpt.of(config.task.name, found)
    if config.model.architecture == "elmo" and found is not Elmo:
        found = elmo_tasks.of(config.task.name, found)
    task = found(config, tokenizer)
    if config.task.get("texts_per_row", 1) > 1 and not isinstance(task, Classification):
        raise UserError(
            f"config.task.texts_per_row={config.task.texts_per_row}: this task is no "
            "classification of texts; leave it 1"
        )
    return task
