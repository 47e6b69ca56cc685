"""Opens a model to answer rows or give vectors in Python, as the modes do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path
from bert_jax.tasks.extractor import Extractor
from bert_jax.tasks.task import Predictor
from bert_jax.training import asked, initial, sharding
from bert_jax.training.evaluator import asking

Rows = Sequence[Mapping[str, Any]]
Answers = list[dict[str, Any]]


def predicting(path: str | Path) -> Callable[[Rows], Answers]:
    """What `--mode=predict` adds to rows, with these weights.

    Raises:
      UserError: the weights lack what their task needs.
    """
    config = asked.without_config([f"--config.init_from={path}"], asks=True)
    nowhere = storage.path(path) / "no-run"  # the weights are of `init_from`
    task = initial.resolve(config, nowhere, from_data=False)
    with initial.restored(task, nowhere, task.unused(predicts=True)) as found:
        predictor = task.predictor(found.missing)
    size = sharding.batch_multiple(found.mesh, config.predict.batch_size)
    ask = asking(predictor.step, found.params, found.mesh, size)
    return lambda rows: predictor.answer(_parsed(predictor, rows), ask, size)


def extracting(
    path: str | Path, params: Any, **fields: Any
) -> Callable[[Rows], Answers]:
    """What `--mode=extract` computes of rows: `names` and `vectors` of each.

    Args:
      params: of the model at `path`.
      fields: of `config.predict`.

    Raises:
      UserError: a layer does not exist.
    """
    config = asked.without_config([f"--config.init_from={path}"], asks=True)
    config.predict.update(fields)
    task = initial.resolve(config, storage.path(path) / "no-run", from_data=False)
    extractor = Extractor(task.config, task.model_config, task.tokenizer)
    mesh = sharding.make_mesh(task.config)
    size = sharding.batch_multiple(mesh, config.predict.batch_size)
    ask = asking(extractor.step, {"bert": params["bert"]}, mesh, size)

    def answers(rows: Rows) -> Answers:
        found = extractor.answer(_parsed(extractor, rows), ask, size)
        extractor.warn()
        return found

    return answers


def _parsed(predictor: Predictor, rows: Rows) -> list[Any]:
    """Raises ValueError with the number of a row that is wrong."""
    parsed = []
    for number, row in enumerate(rows):
        try:
            parsed.append(predictor.parse(dict(row)))
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from error
    return parsed
