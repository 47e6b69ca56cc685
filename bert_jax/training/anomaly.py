"""Detects losses that are not finite, and handles them.

A step is an anomaly if its loss or gradient norm is not finite. The compiled step
detects it and leaves parameters and moments unchanged, on the device, without waiting
for the host. So no anomaly is ever part of a saved or evaluated state. The host checks
a step after it has started the next one, and before it writes, saves or evaluates
anything, and then acts as `train.on_anomaly` specifies.

All of it is a function of the state and the batch: a run that is killed and restarted
finds the same anomalies and does the same.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bert_jax.errors import UserError

if TYPE_CHECKING:
    from bert_jax.training.log import Log
    from bert_jax.training.seeds import Seeds

DECAY = 0.99  # the running means cover about the last hundred good steps
# With more anomalies than this among about the last hundred steps, the run stops. Ten
# in a row count for 9.56.
TOO_MANY = 9.5

# Metrics of `detect_anomaly` that no log has.
_UNLOGGED = ("anomaly", "usual_grad_norm")
_SHOWN = ("loss", "grad_norm", "usual_loss", "usual_grad_norm")


class RunningStats(NamedTuple):
    """Running means over the good steps: a part of the state, saved and restored."""

    loss: Float[Array, "*seeds"] | np.ndarray = np.zeros((), np.float32)
    grad_norm: Float[Array, "*seeds"] | np.ndarray = np.zeros((), np.float32)
    steps: Int[Array, "*seeds"] | np.ndarray = np.zeros((), np.int32)  # good steps
    # Anomalies among about the last hundred steps, including skipped ones.
    recent: Float[Array, "*seeds"] | np.ndarray = np.zeros((), np.float32)


def detect_anomaly(
    running: RunningStats,
    loss: Float[Array, ""],
    grad_norm: Float[Array, ""],
) -> tuple[Bool[Array, ""], RunningStats, dict[str, Array]]:
    """Returns whether a step is an anomaly, the next running means, and its metrics.

    Args:
      running: Running means before the step.
      loss: Loss of the step's batch, nats.
      grad_norm: Gradient norm before clipping.
    """
    values = jnp.stack([loss, grad_norm])
    # As in Adam, the means start at 0, and this corrects the bias.
    weight = 1 - jnp.float32(DECAY) ** running.steps
    biased = jnp.stack([running.loss, running.grad_norm])
    known = biased / jnp.maximum(weight, 1 - DECAY)
    bad = ~jnp.all(jnp.isfinite(values))
    mean_loss, mean_norm = DECAY * biased + (1 - DECAY) * values
    recent = DECAY * running.recent
    after = jax.tree.map(
        lambda same, new: jnp.where(bad, same, new),
        running._replace(recent=recent + 1),
        RunningStats(mean_loss, mean_norm, running.steps + 1, recent),
    )
    metrics = {
        "anomaly": jnp.where(bad, after.recent, 0.0),
        "usual_loss": known[0],
        "usual_grad_norm": known[1],
    }
    return bad, after, metrics


class SelectUnlessBad:
    """A choice of `old` after an anomaly, else `new`. Integer counts are always new."""

    def __init__(self, bad: Bool[Array, ""]):
        self._bad = bad
        self._chosen: dict[int, Array] = {}

    def __call__(self, new: Any, old: Any) -> Any:
        """Chooses leaf by leaf. Results of `store_moments` are chosen already."""

        def choose(n: Array, o: Array) -> Array:
            is_float = jnp.issubdtype(n.dtype, jnp.floating)
            same = id(n) in self._chosen or not is_float
            return n if same else jnp.where(self._bad, o, n)

        return jax.tree.map(choose, new, old)

    def store_moments(self, new: Any, old: Any) -> Any:
        """Chooses moments that an update uses. A CPU computes them only once."""
        moments = jax.lax.platform_dependent(
            self(new, old), cpu=jax.lax.optimization_barrier, default=lambda x: x
        )
        self._chosen |= {id(leaf): leaf for leaf in jax.tree.leaves(moments)}
        return moments


class Anomalies:
    """The host's side: checks each step one step later, and acts.

    Args:
      stops: Whether an anomaly ends the run (`config.train.on_anomaly=stop`).
      seeds: Seeds of the run.
      log: Log that receives the numbers of each seed with an anomaly, and a line.
    """

    def __init__(self, stops: bool, seeds: "Seeds", log: "Log"):
        self._stops, self._seeds, self._log = stops, seeds, log
        self._pending: tuple[int, dict[str, Array]] | None = None

    def add(self, step: int, metrics: dict[str, Array]) -> None:
        """Calls `check_last` for the step before, stores a step's metrics, and removes
        from `metrics` those that the log does not have."""
        self.check_last()
        self._pending = (step, dict(metrics))
        for name in _UNLOGGED:
            del metrics[name]

    def check_last(self) -> None:
        """Waits for the last step.

        Raises:
          UserError: It is an anomaly that stops the run, or there were too many.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return
        step, metrics = pending
        recent = float(np.max(jax.device_get(metrics["anomaly"])))
        if not recent:
            return
        each: list[dict[str, int | float]] = [
            {"batch": step - 1, **{name: one[name] for name in _SHOWN}}
            if one["anomaly"]
            else {}
            for one in self._seeds.floats(metrics)
        ]
        self._log.anomaly(step, each)
        worst = next(one for one in each if one)
        event = (
            f"step {step}: loss {worst['loss']:.4g} (usually {worst['usual_loss']:.4g})"
            f", gradient norm {worst['grad_norm']:.4g} (usually "
            f"{worst['usual_grad_norm']:.4g})"
        )
        if self._stops:
            raise UserError(
                f"{event}; stopped, without saving this step of batch_at(config, "
                f"{step - 1}); the same command with --config.train.on_anomaly=skip "
                "skips such batches"
            )
        if recent > TOO_MANY:
            raise UserError(
                f"{event}; too many recent anomalies: lower config.optimizer."
                "learning_rate or warm up longer, with another --workdir"
            )
        self._log.note(f"{event}; this batch skipped")
