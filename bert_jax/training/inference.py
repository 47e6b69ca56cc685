"""The answerer (rows in, answers out, for every mode that queries a model), and exact
evaluation on the devices."""

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from flax import traverse_util
from jax.sharding import Mesh

from bert_jax.data.rows import Batch, BatchSize, sorted_groups
from bert_jax.data.tables import Record, Row
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig
from bert_jax.models.layers import Dense
from bert_jax.runtime import signals
from bert_jax.runtime.storage import Path
from bert_jax.tasks import row_files
from bert_jax.tasks.reasons import Reasons
from bert_jax.tasks.task import (
    ApplyFn,
    Outputs,
    Predictor,
    Results,
    Task,
    require_finite,
)
from bert_jax.tasks.zero_shot import ZeroShot
from bert_jax.training import setup, sharding
from bert_jax.training.seeds import Seeds
from bert_jax.workdir import folder as workdir

# On a CPU a batch has at most `_ROWS` rows, and is computed in sub-batches: a few rows
# cost only their own.
_ROWS, _FEW = 16, 4
# Bytes of outputs that may wait on the device, in addition to one batch's.
_WAITING = 1 << 28

OnDevice = dict[str, jax.Array]


class Answerer:
    """Answers rows: encodes them, computes batches sorted by length, decodes.

    Attributes:
      predictor: How rows become sequences, and outputs answers.
      params: The parameters of `predictor.outputs`.
      mesh: The devices.
      size: The size of a batch.
    """

    def __init__(
        self,
        predictor: Predictor,
        params: Any,
        mesh: Mesh,
        rows: int,
        config: BertConfig,
    ):
        """Compiles nothing yet.

        Args:
          rows: About how many rows are computed together.
          config: Config of the model.
        """
        self.predictor, self.params, self.mesh = predictor, params, mesh
        self.size = batch_size(mesh, rows, config.hidden_size)
        # Whether kernels may be of a wider dtype than the model reads them in.
        self._rounds = config.dtype != "float32"
        self._outputs = jit_outputs(predictor.outputs, mesh)

    @property
    def notices(self) -> Counter[str]:
        """Counts of rows that were cut, by reason (`Task.notices`)."""
        found = getattr(self.predictor, "notices", None)
        return found if isinstance(found, Counter) else Counter()

    def answer(self, rows: Sequence[Any]) -> list[Row]:
        """Returns the fields to add to each row.

        Raises:
          ValueError: See `parse_rows`.
          UserError: The model computes NaN or infinity.
        """
        return self.start(self.parse_rows(rows))()

    def parse_rows(self, rows: Sequence[Any], first: int = 0) -> list[Any]:
        """Returns rows in the form that `start` takes.

        Args:
          first: Number of the first row, for errors.

        Raises:
          ValueError: A row is wrong. Names its number.
        """
        parsed = []
        for number, row in enumerate(rows, first):
            if not isinstance(row, Mapping):
                raise ValueError(f"row {number}: a JSON object is required")
            try:
                parsed.append(self.predictor.parse_row(dict(row)))
            except ValueError as error:
                raise ValueError(f"row {number}: {error}") from error
        return parsed

    def start(self, parsed: Sequence[Any]) -> Callable[[], list[Row]]:
        """Starts the computation. Returns a function that waits for the answers."""
        if not parsed:
            return list
        features = self.predictor.encode(parsed, "predict")
        table = self.predictor.make_rows(features)
        outputs: list[Outputs] = [{} for _ in features]
        waiting: deque[tuple[np.ndarray, OnDevice]] = deque()

        def fetch() -> None:
            indices, computed = waiting.popleft()
            fetched = require_finite(jax.device_get(computed))
            for place, index in enumerate(indices):
                outputs[index] = {name: x[place] for name, x in fetched.items()}

        def finish() -> list[Row]:
            while waiting:
                fetch()
            return self.predictor.decode(parsed, features, outputs)

        lengths, limit = table.lengths.tolist(), self.predictor.max_seq_length
        for indices, tokens in sorted_groups(lengths, self.size, limit):
            batch = table.batch(indices, tokens)
            count, *shape = batch["input_ids"].shape
            parts: Iterable[tuple[slice, int]]
            if self.size.width:
                parts = split_batch(count, self.size.max_rows(math.prod(shape)))
            else:
                most = next(n for n in sub_batch_sizes(self.size.rows) if n >= count)
                parts = [(slice(count), sharding.batch_multiple(self.mesh, most))]
            for part, of in parts:
                rows = {name: column[part] for name, column in batch.items()}
                waiting.append((indices[part], self._compute(rows, of)))
                while len(waiting) > 1 and _bytes(waiting) > _WAITING:
                    fetch()
        return finish

    def _compute(self, rows: Batch, count: int) -> OnDevice:
        """Starts the computation of `count` rows: `rows`, and the last one again."""
        places = np.minimum(np.arange(count), len(rows["input_ids"]) - 1)
        batch: Any = {name: column[places] for name, column in rows.items()}
        if not is_one_cpu(self.mesh):
            local = sharding.local_rows(self.mesh, count)
            here = {name: column[local] for name, column in batch.items()}
            batch = sharding.place_batch(here, self.mesh, count)
        with sharding.activate_mesh(self.mesh):
            if self._rounds:
                function, self._rounds = self.predictor.outputs, False
                self.params = round_kernels(function, self.params, batch)
            return self._outputs(self.params, batch)

    def stream(
        self,
        records: Iterable[Record],
        characters: int = row_files.CHARACTERS,
        skip: int = 0,
    ) -> Iterator[list[tuple[Row, Row]]]:
        """Yields rows and their answers, in the order of the input, some at a time.

        The device computes rows while the next ones are read and encoded. The other
        arguments are those of `row_files.row_windows`.

        Args:
          skip: Number of rows that are not answered. The others have the same numbers,
            because they are computed in the same batches.

        Raises:
          UserError: There are fewer rows.
        """
        started: deque[tuple[list[Row], Callable[[], list[Row]], int]] = deque()
        size, parse = self.size.rows, self.predictor.parse_row

        def finish() -> list[tuple[Row, Row]]:
            rows, answers, first = started.popleft()
            return list(zip(rows, answers(), strict=True))[first:]

        for read in row_files.row_windows(records, parse, size, characters):
            first, skip = min(skip, len(read)), max(skip - len(read), 0)
            if first and first == len(read):
                continue
            answers = self.start([parsed for _, parsed in read])
            started.append(([row for row, _ in read], answers, first))
            if len(started) > 1:
                yield finish()
        if skip:
            raise UserError(
                f"--input: has {skip:,} rows fewer than OUTPUT.part; delete that to "
                "start again"
            )
        while started:
            yield finish()


def restore_answerer(task: Task, folder: Path) -> Answerer:
    """Restores the task's checkpoint in `folder`, or else the weights of `init_from`.

    Raises:
      UserError: There are no weights, or they lack a part that the task needs.
    """
    unused = task.unused_parameters(predicts=True)
    restored = setup.restored_params(task, folder, unused)
    if workdir.has_config(folder):
        workdir.warn_unfitted(task.config.task, restored.fitted)
    predictor = find_predictor(task.with_fitted(restored.fitted), restored.missing)
    rows = task.config.predict.batch_size
    return Answerer(predictor, restored.params, restored.mesh, rows, task.model_config)


def find_predictor(
    task: Task, missing: Collection[str], options: Mapping[str, Any] | None = None
) -> Predictor:
    """Returns the predictor that `config.predict` asks for.

    Args:
      missing: Parts that the weights lack.
      options: Values in place of those of `config.predict`.

    Raises:
      UserError: It is for another task.
    """
    chosen = {**task.config.predict, **(options or {})}
    predictor = task.predictor(missing)
    if chosen["labels"]:
        predictor = ZeroShot(predictor, chosen["labels"], chosen["hypothesis"])
    if chosen["reasons"]:
        predictor = Reasons(predictor, chosen["reasons"])
    return predictor


def jit_outputs(function: ApplyFn, mesh: Mesh) -> Any:
    """Compiles a function of (params, batch) as evaluation and prediction run it, for
    each shape of a batch. To be called in `sharding.activate_mesh`."""
    return jax.jit(function, out_shardings=sharding.replicated_sharding(mesh))


def is_one_cpu(mesh: Mesh) -> bool:
    """Returns whether the mesh is a single CPU device."""
    return mesh.size == 1 and mesh.devices.flat[0].platform == "cpu"


def batch_size(mesh: Mesh, rows: int, width: int) -> BatchSize:
    """Returns the size of batches of about `rows` rows, smaller on one CPU.

    Args:
      width: Size of a token's vector.
    """
    rows = sharding.batch_multiple(mesh, rows)
    return BatchSize(min(rows, _ROWS), width) if is_one_cpu(mesh) else BatchSize(rows)


def sub_batch_sizes(whole: int) -> list[int]:
    """Returns the possible sizes of a sub-batch, of which the largest is `whole`."""
    return sorted({1, min(_FEW, whole), whole})


def split_batch(count: int, whole: int) -> Iterator[tuple[slice, int]]:
    """Splits rows into sub-batches of at most three sizes, so that few programs are
    compiled.

    Args:
      whole: Number of rows of the largest sub-batch.

    Yields:
      The rows of a sub-batch, and the number of rows that are computed for it: not
      many more.
    """
    sizes, start = sub_batch_sizes(whole), 0
    while start < count:
        left = count - start
        of = next((n for n in sizes if 3 * n <= 4 * left and left <= n), 0)
        of = of or max(n for n in sizes if n <= left)
        yield slice(start, start + of), of
        start += of


def _bytes(waiting: Iterable[tuple[Any, OnDevice]]) -> int:
    return sum(x.nbytes for _, outputs in waiting for x in outputs.values())


def round_kernels(function: ApplyFn, params: Any, batch: Mapping[str, Any]) -> Any:
    """Returns parameters with which a function of (params, batch) computes the same.

    The kernels that a `Dense` layer multiplies in its dtype are rounded to it now, and
    not in each call.
    """
    dtypes: dict[tuple[str, ...], str] = {}

    def note(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        module = context.module
        if isinstance(module, Dense) and not module.logits:
            dtypes[*module.path, "kernel"] = module.config.dtype
        return call(*args, **kwargs)

    with nn.intercept_methods(note):
        jax.eval_shape(function, params, batch)
    flat = traverse_util.flatten_dict(params)
    for path, leaf in flat.items():
        for start in range(len(path)):  # the function may apply a part of the model
            if dtype := dtypes.get(path[start:]):
                flat[path] = leaf.astype(dtype)
    return traverse_util.unflatten_dict(flat)


def require_score(task: Task, mesh: Mesh) -> None:
    """Scores outputs of zeros on dev, to know which scores the task reports. Computes
    nothing on the devices.

    Raises:
      UserError: `config.evaluate.score` is not among them.
    """
    if not task.config.evaluate.score:
        return
    params = sharding.abstract_arrays(task.param_shapes, mesh)
    outputs, fetched = jit_outputs(task.outputs, mesh), []
    split, step = task.dev_splits[0], task.config.train.num_steps
    for batch in task.evaluation_batches(split, step, slice(None)):
        with sharding.activate_mesh(mesh):
            shapes = outputs.eval_shape(params, batch)
        fetched.append(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes))
    task.selection_value(task.results(split, fetched, learns=True).scores)


class Evaluator:
    """Evaluation of parameters on a split, compiled once for each shape of a batch."""

    def __init__(
        self,
        task: Task,
        seeds: Seeds,
        mesh: Mesh,
        *,
        learns: bool = True,
        model_params: Callable[[Any, int], Any] = lambda params, _: params,
    ):
        """Stores its arguments. Compiles nothing yet.

        Args:
          learns: Whether values are fitted to the first dev split's outputs.
          model_params: Function of a run's parameters, of one seed, and the number of
            steps that returns the model's.
        """
        self._model_params = model_params
        self.task, self.mesh, self.seeds = task, mesh, seeds
        self._learns = learns
        self._outputs = jit_outputs(task.outputs, mesh)
        self._kept: tuple[int, dict[str, list[Results]]] = (-1, {})
        self._fitted = [task.fitted for _ in seeds.numbers]

    def results(self, params: Any, split: str, now: int) -> Iterator[Results]:
        """Yields each seed's results on a split. Caches those of the last `now`.

        Raises:
          Interrupted: A signal arrived. Raised between two batches.
        """
        if self._kept[0] != now:
            self._kept = (now, {})
        kept = self._kept[1].setdefault(split, [])
        learns = self._learns and split in self.task.dev_splits[:1]
        for seed, one in enumerate(self.seeds.split(params)):
            if seed == len(kept):
                fetched = self.fetch(self._model_params(one, now), split, now)
                task = self.task.with_fitted(self._fitted[seed])
                kept.append(task.results(split, fetched, learns=learns))
                self._fitted[seed] = kept[seed].fitted
            yield kept[seed]

    def fetch(self, params: Any, split: str, now: int) -> list[Any]:
        """Returns the outputs of all batches of a split, for one seed's parameters."""
        size = self.task.config.evaluate.batch_size
        rows = sharding.local_rows(self.mesh, size)
        fetched: list[Any] = []
        ahead: Any = None
        for batch in self.task.evaluation_batches(split, now, rows):
            count = len(next(iter(batch.values())))
            step = {"step": np.full(count, now, np.int32)}
            placed = sharding.place_batch({**batch, **step}, self.mesh, size)
            with sharding.activate_mesh(self.mesh):
                outputs = self._outputs(params, placed)
            # Fetches the previous batch's outputs while this one is computed.
            if ahead is not None:
                fetched.append(jax.device_get(ahead))
            ahead = outputs
            signals.raise_if_interrupted()
        return [*fetched, jax.device_get(ahead)]
