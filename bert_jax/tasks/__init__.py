"""Tasks: data -> features, head, losses, scores, predictions, by name."""

from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import family
from bert_jax.config.task_fields import GLUE
from bert_jax.registry import Registry

if TYPE_CHECKING:  # data of tasks is read without JAX
    import bert_jax.tasks.task

# Subclasses of `definition.TaskDefinition`, or functions of (config, tokenizer) that
# return a Task. A custom config file adds one: TASKS["questions"] = Questions.
TASKS = Registry(
    "task.name",
    {
        "pretraining": "bert_jax.tasks.pretraining:Pretraining",
        **dict.fromkeys(GLUE, "bert_jax.tasks.glue.task:Glue"),
        "squad": "bert_jax.tasks.squad.task:Squad",
        "swag": "bert_jax.tasks.swag:Swag",
        "ner": "bert_jax.tasks.ner.task:Ner",
        "text": "bert_jax.tasks.text:Text",
        "imdb": "bert_jax.tasks.imdb:Imdb",
        "embeddings": "bert_jax.tasks.embeddings.task:EmbeddingTask",
    },
)


def create_task(
    config: ConfigDict, tokenizer: Tokenizer | None = None
) -> "bert_jax.tasks.task.Task":
    """Creates the task that `config.task.name` names.

    Args:
      tokenizer: Tokenizer. None means `tokenization.load_config_tokenizer`'s.

    Raises:
      UserError: no task has that name, or its config is wrong.
    """
    name, chosen = config.task.name, family.family_of(config)
    return make_task(chosen.task(name, TASKS.lookup(name)), config, tokenizer)


def make_task(
    entry: Any, config: ConfigDict, tokenizer: Tokenizer | None = None
) -> "bert_jax.tasks.task.Task":
    """Creates the task of an entry of TASKS."""
    from bert_jax.tasks.definition import TaskDefinition
    from bert_jax.tasks.finetuning import Finetuning

    if isinstance(entry, type) and issubclass(entry, TaskDefinition):
        return Finetuning(entry, config, tokenizer)
    return entry(config, tokenizer)
