"""Tasks: data -> features, head, losses, scores, predictions. One file per family."""

from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.registry import Registry
from bert_jax.tasks.task import Task

GLUE = "cola sst2 mrpc stsb qqp mnli qnli rte wnli ax"
# Classes, or functions of (config, tokenizer). Your own config file adds one:
# TASKS["questions"] = Questions.
TASKS = Registry(
    {
        "pretraining": "bert_jax.tasks.pretraining:Pretraining",
        "elmo": "bert_jax.tasks.elmo:Elmo",
        **dict.fromkeys(GLUE.split(), "bert_jax.tasks.glue:Glue"),
        "squad": "bert_jax.tasks.squad:Squad",
        "swag": "bert_jax.tasks.swag:Swag",
        "ner": "bert_jax.tasks.ner:Ner",
        "text": "bert_jax.tasks.text:Text",
        "imdb": "bert_jax.tasks.text:Imdb",
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
            f"config.task.name={config.task.name!r}: choose one of {', '.join(TASKS)}; "
            "one of your own needs the --config file that adds it"
        )
    name, family = config.task.name, FAMILIES[config.model.architecture]
    task: Task = family.task(name, TASKS[name])(config, tokenizer)
    if config.task.get("texts_per_row", 1) > 1:
        from bert_jax.tasks.classification import Classification

        if not isinstance(task, Classification):
            raise UserError(
                f"config.task.texts_per_row={config.task.texts_per_row}: this task is "
                "no classification of texts; leave it 1"
            )
    return task
