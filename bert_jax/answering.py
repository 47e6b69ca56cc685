"""Opens a model to answer rows or give vectors in Python, as the modes do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.data.rows import BatchSize
from bert_jax.extract.extractor import Extractor
from bert_jax.runtime import storage
from bert_jax.runtime.storage import Path
from bert_jax.tasks.task import PredictFn, Predictor, Task
from bert_jax.training import from_weights, setup, sharding
from bert_jax.training.inference import batch_size, compile_predict

Rows = Sequence[Mapping[str, Any]]
Answers = list[dict[str, Any]]


def predicting(path: str | Path) -> Callable[[Rows], Answers]:
    """What `--mode=predict` adds to rows, with these weights.

    Raises:
      UserError: the weights lack what their task needs.
    """
    config = from_weights.without_config([f"--config.init_from={path}"])
    nowhere = storage.path(path) / "no-run"  # the weights are of `init_from`
    task = setup.build_task(config, nowhere, from_data=False)
    model = of_task(task, nowhere)
    return lambda rows: model.answer(parsed(model.predictor, rows))


class Answering(NamedTuple):
    """A restored model.

    Attributes:
      ask: computes a batch of up to `size`.
    """

    predictor: Predictor
    ask: PredictFn
    size: BatchSize

    def answer(self, rows: Sequence[Any]) -> Answers:
        """What to add to each parsed row."""
        return self.predictor.answer(rows, self.ask, self.size)


def of_task(task: Task, folder: Path) -> Answering:
    """The task with the checkpoint in `folder`, or else the weights of `init_from`.

    Raises:
      UserError: there are none, or they lack what the task needs.
    """
    with setup.restored_params(task, folder, task.unused(predicts=True)) as restored:
        predictor = task.predictor(restored.missing)
    rows, width = task.config.predict.batch_size, task.model_config.hidden_size
    size = batch_size(restored.mesh, rows, width)
    ask = compile_predict(predictor.step, restored.params, restored.mesh, size)
    return Answering(predictor, ask, size)


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
    config = from_weights.without_config([f"--config.init_from={path}"])
    config.predict.update(fields)
    task = setup.build_task(config, storage.path(path) / "no-run", from_data=False)
    extractor = Extractor(task.config, task.model_config, task.tokenizer)
    mesh = sharding.make_mesh(task.config)
    rows, width = config.predict.batch_size, task.model_config.hidden_size
    size = batch_size(mesh, rows, width)
    ask = compile_predict(extractor.step, {"bert": params["bert"]}, mesh, size)

    def answers(rows: Rows) -> Answers:
        vectors = extractor.answer(parsed(extractor, rows), ask, size)
        extractor.warn()
        return vectors

    return answers


def parsed(predictor: Predictor, rows: Sequence[Any]) -> list[Any]:
    """What the predictor makes of the rows.

    Raises:
      ValueError: a row is wrong; names its number, from 0.
    """
    parsed_rows = []
    for number, row in enumerate(rows):
        try:
            parsed_rows.append(parsed_row(predictor, row))
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from error
    return parsed_rows


def parsed_row(predictor: Predictor, row: Any) -> Any:
    """What the predictor makes of a row.

    Raises:
      ValueError: it is wrong.
    """
    if not isinstance(row, Mapping):
        raise ValueError("a JSON object is required")
    return predictor.parse(dict(row))
