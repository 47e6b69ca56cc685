"""The training step of a language model whose LSTMs go on where the last step ended."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Int

from bert_jax.families.elmo.pretraining import Elmo
from bert_jax.training import sharding
from bert_jax.training.anomaly import RunningStats, SelectUnlessBad
from bert_jax.training.setup import Base
from bert_jax.training.step import Step, TrainState, train_step
from bert_jax.training.transforms import Gradient, Gradients, only
from bert_jax.training.watch import Watcher
from bert_jax.types import Arrays, Params


class CarriedState(NamedTuple):
    """A run's state, and that of the LSTMs after the words that each row has read."""

    step: Int[Array, ""]
    params: Params
    opt_state: optax.OptState
    running_stats: RunningStats
    carry: Arrays  # [batch, ...]

    @property
    def run(self) -> TrainState:
        """The state without the LSTMs'."""
        return TrainState(*self[:-1])

    def evaluation_params(self) -> Params:
        """Returns what `TrainState.evaluation_params` does."""
        return self.run.evaluation_params()

    def items(self) -> dict[str, Any]:
        """Returns the saved parts, as `TrainState.items` does."""
        return self.run.items() | {"carry": self.carry}

    def restored(self, items: Mapping[str, Any], step: int) -> "CarriedState":
        """Returns the state of a checkpoint's items, with this state's shardings."""
        return CarriedState(*self.run.restored(items, step), items["carry"])


class CarriedStep(Step):
    """A step that leaves the LSTMs' state to the next one. An anomaly leaves it as it
    was."""

    task: Elmo
    abstract: CarriedState  # type: ignore[assignment] # with more than a TrainState

    def __init__(self, task: Elmo, mesh: Mesh, base: Base | None = None):
        super().__init__(task, mesh, base)
        rows = sharding.batch_sharding(mesh)
        carry = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows),
            jax.eval_shape(task.first_carry),
        )
        run: Any = self.abstract
        self.abstract = CarriedState(**run._asdict(), carry=carry)

    def begin(self, params: Params) -> CarriedState:  # type: ignore[override]
        return CarriedState(*super().begin(params), self.task.first_carry())

    def step_of_seed(
        self,
        micro_batches: int,
        rate: Any,
        constants: Any,
        watchers: Sequence[Watcher] = (),
    ) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
        """Returns one seed's step. An ELMo has one micro-batch and no constants."""

        def one_seed(state: CarriedState, batch: Any, number: Any) -> tuple:
            def make(loss: Callable[..., Any]) -> Gradient:
                return functools.partial(self._differentiate, loss, state.carry)

            gradient = only(make, self.task.carried_loss, self._learns)
            key = jax.random.key(number)
            run, metrics = train_step(
                state.run, batch, key, rate, gradient, self._optimizer, watchers
            )
            choose = SelectUnlessBad(metrics["anomaly"] > 0)
            carry = choose(metrics.pop("carry"), state.carry)
            return CarriedState(*run, carry), metrics

        return one_seed

    def _differentiate(
        self,
        loss: Callable[..., Any],
        carry: Arrays,
        params: Params,
        batch: Arrays,
        key: Any,
    ) -> Gradients:
        """Returns the gradients of a batch, and the next `carry` among the metrics."""
        divisors = self.task.loss_weights(batch)

        def total(params: Params) -> tuple:
            sums, after = loss(params, batch, jax.random.fold_in(key, 0), carry)
            losses = {name: value / divisors[name] for name, value in sums.items()}
            return sum(losses.values()), (losses, after)

        grads, (losses, after) = jax.grad(total, has_aux=True)(params)
        return Gradients(grads, losses, {"carry": after})
