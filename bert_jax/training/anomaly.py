"""Losses that are not finite and spikes: what they are, and what is done about them.

A step is an anomaly where its loss or its gradient's norm is not finite or, with
`train.spike_factor`, more than so many times its usual value. The compiled step finds
out and then leaves parameters and moments as they were, on the device and without a
word to the host, so nothing that is saved or evaluated has ever taken such a step. The
host looks at a step when the next one has been sent off, and before it writes, saves or
evaluates anything, and does what `train.on_anomaly` says.

All of it is a function of the state and the batch: a run that is killed and started
again finds the same anomalies and does the same.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from ml_collections import ConfigDict

from bert_jax.errors import UserError

DECAY = 0.99  # of the running means: they are about the last hundred good steps
KNOWN_AFTER = 100  # good steps; before, nothing is known to be a spike
# More than so many of about the last hundred steps are no accident: the run stops. Ten
# in a row count for 9.56.
TOO_MANY = 9.5

# What the step tells of itself to this file alone.
_OWN = ("anomaly", "usual_loss", "usual_grad_norm")
_SHOWN = ("loss", "grad_norm", "usual_loss", "usual_grad_norm")


class RunningStats(NamedTuple):
    """Running means over the good steps; a part of the state, saved and restored."""

    loss: Float[Array, "*seeds"] | np.ndarray = np.zeros((), np.float32)
    grad_norm: Float[Array, "*seeds"] | np.ndarray = np.zeros((), np.float32)
    steps: Int[Array, "*seeds"] | np.ndarray = np.zeros((), np.int32)  # good ones
    # Anomalies among about the last hundred steps, those left out included.
    recent: Float[Array, "*seeds"] | np.ndarray = np.zeros((), np.float32)


def check(config: ConfigDict, processes: int = 1) -> None:
    """Raises UserError where `config.train` asks for what there is not."""
    train = config.train
    if train.on_anomaly == "roll_back" and processes > 1:
        raise UserError(
            "config.train.on_anomaly=roll_back is for a run of one process; take skip"
        )


def judge(
    usual: RunningStats,
    loss: Float[Array, ""],
    grad_norm: Float[Array, ""],
    spike_factor: int | float,
) -> tuple[Bool[Array, ""], RunningStats, dict[str, Array]]:
    """Whether a step is an anomaly, the running means after it, and its metrics.

    Args:
      usual: before the step.
      loss: of the step's batch, nats.
      grad_norm: before clipping.
      spike_factor: times the usual value; 0: no finite value is an anomaly.
    """
    values = jnp.stack([loss, grad_norm])
    # As in Adam, the means begin at 0 and are corrected for that.
    weight = 1 - jnp.float32(DECAY) ** usual.steps
    means = jnp.stack([usual.loss, usual.grad_norm])
    known = means / jnp.maximum(weight, 1 - DECAY)
    bad = ~jnp.all(jnp.isfinite(values))
    if spike_factor:
        spikes = jnp.any(values > spike_factor * known)
        bad |= spikes & (usual.steps >= KNOWN_AFTER)
    mean_loss, mean_norm = DECAY * means + (1 - DECAY) * values
    recent = DECAY * usual.recent
    after = jax.tree.map(
        lambda same, new: jnp.where(bad, same, new),
        usual._replace(recent=recent + 1),
        RunningStats(mean_loss, mean_norm, usual.steps + 1, recent),
    )
    metrics = dict(zip(_OWN, (jnp.where(bad, after.recent, 0.0), *known), strict=True))
    return bad, after, metrics


def unless(bad: Bool[Array, ""], new: Any, old: Any) -> Any:
    """`new`, or `old` after an anomaly; integers, which count steps, are always new."""
    return jax.tree.map(
        lambda n, o: jnp.where(bad, o, n) if _is_float(n) else n, new, old
    )


def _is_float(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


class Anomalies:
    """The host's side: looks at each step, late, and acts.

    Args:
      action: `config.train.on_anomaly`.
      floats: fetches metrics, those of each seed.
      write: takes the step and each seed's numbers, none where all is well.
      note: prints a line.
    """

    def __init__(
        self,
        action: str,
        floats: Callable[[Mapping[str, Array]], list[dict[str, float]]],
        write: Callable[[int, Sequence[Mapping[str, int | float]]], None],
        note: Callable[[str], None],
    ):
        self.step, self.recent = 0, 0.0  # of the last anomaly, for who goes back
        self._action, self._floats = action, floats
        self._write, self._note = write, note
        self._pending: tuple[int, dict[str, Array]] | None = None

    def add(self, step: int, metrics: dict[str, Array]) -> bool:
        """Takes the metrics of step `step`, of which it keeps its own, and waits for
        the step before; as `settle` on that."""
        before, self._pending = self._pending, (step, dict(metrics))
        for name in _OWN:
            del metrics[name]  # the others are for the log
        return before is not None and self._look(*before)

    def settle(self) -> bool:
        """Waits for the last step. Whether the run must go back from an anomaly.

        Raises:
          UserError: it is one, and the run is to stop, or there were too many.
        """
        pending, self._pending = self._pending, None
        return pending is not None and self._look(*pending)

    def leave_out(self, state: Any) -> Any:
        """A checkpoint's state as that after the last anomaly: its integers, which
        count steps, are the anomaly's."""

        def counter(x: Array, count: int | float) -> Array:
            return jax.device_put(jnp.full(x.shape, count, x.dtype), x.sharding)

        stats = state.running_stats
        return state._replace(
            step=counter(state.step, self.step),
            opt_state=jax.tree.map(
                lambda x: x if _is_float(x) else counter(x, self.step), state.opt_state
            ),
            running_stats=stats._replace(recent=counter(stats.recent, self.recent)),
        )

    def _look(self, step: int, metrics: dict[str, Array]) -> bool:
        recent = float(np.max(jax.device_get(metrics["anomaly"])))
        if not recent:
            return False
        self.step, self.recent = step, recent
        each: list[dict[str, int | float]] = [
            {"batch": step - 1, **{name: one[name] for name in _SHOWN}}
            if one["anomaly"]
            else {}
            for one in self._floats(metrics)
        ]
        self._write(step, each)
        worst = next(one for one in each if one)
        event = (
            f"step {step}: loss {worst['loss']:.4g} (usually {worst['usual_loss']:.4g})"
            f", gradient norm {worst['grad_norm']:.4g} (usually "
            f"{worst['usual_grad_norm']:.4g})"
        )
        if self._action == "stop":
            raise UserError(
                f"{event}; stopped, and nothing of it saved. The batch is "
                f"batch_at(config, {step - 1}); the same command with --config.train."
                "on_anomaly=skip leaves such batches out, with roll_back those since "
                "the last checkpoint too"
            )
        if recent > TOO_MANY:
            raise UserError(
                f"{event}; there were too many of late, so it is not the batch: lower "
                "config.optimizer.learning_rate, warm up longer or raise "
                "config.train.spike_factor, with another --workdir"
            )
        skips = self._action == "skip"
        since = "" if skips else " and those since the last checkpoint"
        self._note(f"{event}; this batch{since} left out")
        if self._action == "roll_back":
            self._pending = None  # the step after it is not to be
            return True
        return False
