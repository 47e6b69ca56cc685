"""Adam as BERT uses it (google-research/bert, optimization.py): schedule, clipping,
decay by axes."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.traverse_util import flatten_dict
from jaxtyping import Array, Float, Int, PyTree
from ml_collections import ConfigDict
from optax import contrib

from bert_jax.config.phases import rate_schedules
from bert_jax.errors import UserError
from bert_jax.models.layers import kernel_inputs
from bert_jax.registry import OPTIMIZERS, SCHEDULES
from bert_jax.training import anomaly
from bert_jax.training.transforms import join, select_params
from bert_jax.types import Params

# A part of a path. With split heads a bias and a norm's scale have two axes.
_VECTOR = re.compile(r"(?:^|[/_])(?:bias|scale)(?:_\d+)?(?:/|$)")
# Logical axes of the inputs and outputs of an encoder's matrices.
_SIDES = {"embed", "heads", "head_dim", "mlp"}
MUON_MOMENTUM = 0.95
# Times the root of a matrix's longer side: its entries then move as far as AdamW's do,
# so rate and decay are AdamW's (Liu et al. 2025, arXiv:2502.16982, section 2.2).
MUON_RMS = 0.2


def layer_axes(name: str, rank: int) -> tuple[int, ...]:
    """Returns the axes of one layer's parameter, for norms and means of it alone.

    With `model.scan_layers` an array has the parameters of all layers, [layers, ...],
    and its first axis is not one of them.

    Args:
      name: Path of the parameter, such as bert/encoder/layers/attention/query/kernel.
      rank: Number of axes of its array.
    """
    return tuple(range(1 if "encoder/layers/" in name else 0, rank))


def map_named(function: Callable, params: PyTree, *rest: PyTree) -> PyTree:
    """Maps a function of each parameter's path, as in `layer_axes`, and its values."""

    def at(path: tuple, *values: Any) -> Any:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return function(name, *values)

    return jax.tree_util.tree_map_with_path(at, params, *rest)


def _is_in(name: str, prefixes: Collection[str]) -> bool:
    """Returns whether a path has one of these prefixes. bert/enc is not a prefix of
    bert/encoder."""
    return any(f"{name}/".startswith(f"{prefix}/") for prefix in prefixes)


def learning_rate_schedule(config: ConfigDict) -> optax.Schedule:
    """Returns the schedule that `config.optimizer.schedule` names.

    Args:
      config: The whole config.

    Returns:
      A function from the step (number of updates before this one) to the rate.

    Raises:
      UserError: The name is unknown. See also `rate_schedules` and
        `polynomial_schedule`.
    """
    starts, configs = zip(*rate_schedules(config), strict=True)
    schedules = [SCHEDULES.lookup(c.optimizer.schedule)(c) for c in configs]
    return optax.join_schedules(schedules, starts[1:]) if starts[1:] else schedules[0]


def learning_rates(config: ConfigDict) -> Float[np.ndarray, " steps"]:
    """Returns the schedule's rate of each of `config.train.num_steps` steps.

    Raises:
      UserError: The schedule branches on the step in Python.
    """
    schedule = learning_rate_schedule(config)
    try:
        rates = jax.jit(jax.vmap(schedule))(jnp.arange(config.train.num_steps))
    except jax.errors.ConcretizationTypeError as error:
        raise UserError(
            f"config.optimizer.schedule={config.optimizer.schedule}: it decides by the "
            "step's value in Python (if, int, float); use jnp.where"
        ) from error
    return np.asarray(rates, np.float32)


def warmup_steps(config: ConfigDict, num_steps: int) -> int:
    """Returns the steps of linear warm-up of a schedule of `num_steps`.

    Raises:
      UserError: The steps are given twice, or more than the schedule has.
    """
    steps, fraction = config.optimizer.warmup_steps, config.optimizer.warmup_fraction
    if (steps and fraction) or steps > num_steps:
        raise UserError(
            f"config.optimizer.warmup_steps={steps}: must be at most the schedule's "
            f"{num_steps} steps, and 0 with warmup_fraction={fraction}"
        )
    return int(steps or fraction * num_steps)


def polynomial_schedule(config: ConfigDict) -> optax.Schedule:
    """Builds linear warm-up from 0, then polynomial decay to 0 at `train.num_steps`.

    The decay starts at step 0, as in create_optimizer and in LAMB's paper: when the
    warm-up ends, the rate drops from the peak to the decay's value at that step. Steps
    count from 0, so with a warm-up the first update has rate 0.

    Args:
      config: The whole config. Reads `optimizer.learning_rate`,
        `optimizer.warmup_steps` or `optimizer.warmup_fraction` (of the schedule's
        steps), `optimizer.decay_power` and `train.num_steps`.

    Returns:
      A function from the step (number of updates before this one) to the rate, float32.

    Raises:
      UserError: A warm-up is given twice or longer than the schedule.
    """
    peak, power = config.optimizer.learning_rate, config.optimizer.decay_power
    num_steps = config.train.num_steps
    warmup = warmup_steps(config, num_steps)

    def schedule(step: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.minimum(jnp.asarray(step), num_steps)
        rising = step / max(warmup, 1)
        falling = ((num_steps - step) / num_steps) ** power
        return peak * jnp.where(step < warmup, rising, falling)

    return schedule


def decay_mask(params: PyTree, unused: Sequence[str] = ()) -> PyTree[bool]:
    """Returns True for parameters that decay: all except those of one axis and biases.

    For BERT these are AdamWeightDecayOptimizer's exclude_from_weight_decay: LayerNorm's
    and biases. Embeddings decay. Parameters on which the loss does not depend keep
    their values, as in optimization.py.

    Args:
      unused: Parts without a gradient, such as `bert/pooler`
        (`Task.unused_parameters`).
    """

    def decays(name: str, param: Any) -> bool:
        is_vector = len(layer_axes(name, param.ndim)) < 2 or _VECTOR.search(name)
        return not (is_vector or _is_in(name, unused))

    return map_named(decays, params)


@dataclasses.dataclass(frozen=True)
class Mask:
    """`decay_mask` as a function of the parameters alone, for OPTIMIZERS.

    Attributes:
      unused: See `decay_mask`.
      axes: Logical names of each parameter's axes, by its path, as far as they are
        known.
    """

    unused: Sequence[str]
    axes: Mapping[str, Sequence[str | None]]

    def __call__(self, params: PyTree) -> PyTree[bool]:
        return decay_mask(params, self.unused)


def axis_names(boxed: PyTree) -> dict[str, tuple[str | None, ...]]:
    """Returns the names of the axes of parameters that are boxed with them, by path."""
    leaves = jax.tree_util.tree_leaves_with_path(boxed, is_leaf=_has_names)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): box.names
        for path, box in leaves
        if _has_names(box)
    }


def _has_names(leaf: Any) -> bool:
    return isinstance(leaf, nn.Partitioned)


class ScaleByBertAdamState(NamedTuple):
    """The moments, each a tree like the parameters."""

    mu: optax.Updates
    nu: optax.Updates


def scale_by_bert_adam(
    beta1: float, beta2: float, eps: float
) -> optax.GradientTransformation:
    """Makes Adam without bias correction, with `eps` outside the square root."""

    def init(params: optax.Params) -> ScaleByBertAdamState:
        # Two trees: one array used twice could not be donated.
        return ScaleByBertAdamState(
            mu=optax.tree.zeros_like(params), nu=optax.tree.zeros_like(params)
        )

    def update(
        updates: optax.Updates,
        state: ScaleByBertAdamState,
        params: optax.Params | None = None,
        unless: anomaly.SelectUnlessBad | None = None,
        **_: Any,
    ) -> tuple[optax.Updates, ScaleByBertAdamState]:
        mu = optax.tree.update_moment(updates, state.mu, beta1, 1)
        nu = optax.tree.update_moment(updates, state.nu, beta2, 2)
        if unless is not None:
            mu, nu = unless.store_moments((mu, nu), (state.mu, state.nu))
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu)
        return updates, ScaleByBertAdamState(mu, nu)

    return optax.GradientTransformationExtraArgs(init, update)


class RunningMeanState(NamedTuple):
    """The parameters' running mean, a tree like the parameters."""

    mean: optax.Params


def keep_running_mean(decay: float) -> optax.GradientTransformation:
    """Makes the last part of an optimizer, which keeps the mean of its parameters.

    The mean begins with the first parameters, and after each step is `decay` of itself
    and the rest of the new parameters.
    """

    def init(params: optax.Params) -> RunningMeanState:
        return RunningMeanState(jax.tree.map(jnp.copy, params))

    def update(
        updates: optax.Updates,
        state: RunningMeanState,
        params: optax.Params | None = None,
    ) -> tuple[optax.Updates, RunningMeanState]:
        new = optax.apply_updates(params, updates)
        mean = optax.tree.update_moment(new, state.mean, decay, 1)
        return updates, RunningMeanState(mean)

    return optax.GradientTransformation(init, update)


_Averages: TypeAlias = RunningMeanState | contrib.ScheduleFreeState


def find_averages(opt_state: optax.OptState) -> list[_Averages]:
    """Returns the parts of an optimizer's state from which weights to evaluate follow,
    none if these are those that learn.

    Raises:
      UserError: There are two kinds of averages.
    """
    parts = jax.tree.leaves(opt_state, is_leaf=lambda x: isinstance(x, _Averages))
    found = [part for part in parts if isinstance(part, _Averages)]
    if len({*map(type, found)}) > 1:
        raise UserError(
            "config.optimizer.ema: this optimizer keeps an average already; set it 0"
        )
    return found


def evaluation_params(opt_state: optax.OptState, params: Params) -> Params:
    """Returns the parameters to evaluate, save and export: the running mean
    (`optimizer.ema`), schedule-free's average, or those that learn.

    Args:
      opt_state: The optimizer's state, of one seed or of several.
      params: The parameters, or their shapes, those that do not learn too.
    """
    for part in find_averages(opt_state):
        if isinstance(part, RunningMeanState):
            params = join(params, part.mean)
        elif not isinstance(jax.tree.leaves(params)[0], jax.ShapeDtypeStruct):
            learning = select_params(params, part.z)
            average = functools.partial(_schedule_free_average, part.b1)
            params = join(params, jax.tree.map(average, learning, part.z))
    return params


def _schedule_free_average(b1: Array, y: Array, z: Array | optax.MaskedNode) -> Array:
    """Returns x of y = b1 x + (1 - b1) z, or y where another optimizer trains it."""
    if isinstance(z, optax.MaskedNode):
        return y
    b1 = jnp.reshape(b1, jnp.shape(b1) + (1,) * (y.ndim - jnp.ndim(b1)))
    return ((y - (1 - b1) * z) / b1).astype(y.dtype)


def make_optimizer(
    config: ConfigDict,
    unused: Sequence[str] = (),
    axes: Mapping[str, Sequence[str | None]] = MappingProxyType({}),
) -> optax.GradientTransformationExtraArgs:
    """Makes the optimizer that `config.optimizer` names, with clipping.

    BERT was trained with `bert_adam`, GPT with `openai_adam`, which as `adamw` and
    `lamb` (the paper's algorithm 2) corrects the moments' bias. All first clip the
    gradients' global norm to `clip_norm` (0 means no clipping), and decay the weights
    that `decay_mask` selects, separately from the moments.

    Args:
      unused: See `decay_mask`.
      axes: See `Mask`.

    Returns:
      An optimizer whose `update` needs the parameters and `learning_rate`, the rate of
      this step: a program that has it as an argument serves all schedules. It passes
      further arguments on, such as Optax's `value`, `grad` and `value_fn`.

    Raises:
      UserError: The name is unknown.
    """
    fields = config.optimizer
    maker = OPTIMIZERS.lookup(fields.name)
    mask = Mask(unused, axes)

    def at(rate: Float[Array, ""] | float) -> optax.GradientTransformation:
        rule = maker(fields, optax.constant_schedule(rate), mask)
        mean = [keep_running_mean(fields.ema)] if fields.ema else []
        # Clips by one factor: Optax divides each element, into another array.
        clip = optax.stateless(
            lambda grads, _: optax.tree.scale(
                jnp.minimum(1.0, fields.clip_norm / optax.tree.norm(grads)), grads
            )
        )
        return optax.chain(clip if fields.clip_norm else optax.identity(), rule, *mean)

    def update(
        updates: optax.Updates,
        state: optax.OptState,
        params: optax.Params | None = None,
        *,
        learning_rate: Float[Array, ""] | float,
        **extra: Any,
    ) -> tuple[optax.Updates, optax.OptState]:
        rule = optax.with_extra_args_support(at(learning_rate))
        return rule.update(updates, state, params, **extra)

    return optax.GradientTransformationExtraArgs(at(0.0).init, update)


def trainable_filter(
    optimizer: ConfigDict, params: Any
) -> Callable[[str], bool] | None:
    """Returns a function that tells from a parameter's path whether it learns. None
    means that all do.

    Parameters that do not have no gradient, no moments and no weight decay, and no part
    in the gradient's norm.

    Args:
      optimizer: Fields of config.optimizer, `trainable` and `frozen`.

    Raises:
      UserError: One of these names no parameter.
    """
    patterns, prefixes = tuple(optimizer.trainable), tuple(optimizer.frozen)
    names = [*flatten_dict(params, sep="/")]
    if not patterns and not prefixes and not any(map(is_step, names)):
        return None

    # No match begins or ends inside a number: layer_1 does not select layer_10.
    edge = r"(?!(?<=\d)\d)"
    wanted = {x: re.compile(f"{edge}(?:{x}){edge}") for x in patterns}

    def learns(name: str) -> bool:
        chosen = not patterns or any(x.search(name) for x in wanted.values())
        return chosen and not _is_in(name, prefixes) and not is_step(name)

    may_learn = [name for name in names if not is_step(name)]
    unmatched = {
        "trainable": [x for x in patterns if not any(map(wanted[x].search, may_learn))],
        "frozen": [x for x in prefixes if not any(_is_in(n, (x,)) for n in may_learn)],
    }
    for field, (name, *_) in ((f, found) for f, found in unmatched.items() if found):
        raise UserError(
            f"config.optimizer.{field}: {name!r} names no parameter that can learn "
            f"(such as {may_learn[0]}; --mode=describe has all)"
        )
    return learns


def is_step(name: str) -> bool:
    """Returns whether a path is that of a layer's `train_step`: a parameter that no
    gradient changes, and that has the number of the step."""
    return name.rpartition("/")[2] == "train_step"


def with_step(params: Params, step: Int[Array, ""] | int) -> Params:
    """Returns parameters with a step in those that `is_step` selects."""
    return map_named(
        lambda name, x: jnp.full_like(x, step) if is_step(name) else x, params
    )


def bert_adam(
    optimizer: ConfigDict, schedule: optax.Schedule, mask: Callable
) -> optax.GradientTransformation:
    """Makes Adam as in google-research/bert, an entry of OPTIMIZERS.

    Args:
      optimizer: Fields of config.optimizer.
      mask: Function that selects the parameters that decay.
    """
    return optax.chain(
        scale_by_bert_adam(optimizer.beta1, optimizer.beta2, optimizer.eps),
        optax.add_decayed_weights(optimizer.weight_decay, mask),
        optax.scale_by_learning_rate(schedule),
    )


def adamw(
    optimizer: ConfigDict, schedule: optax.Schedule, mask: Callable
) -> optax.GradientTransformation:
    """Makes Adam with bias correction, as in Optax."""
    return optax.adamw(
        schedule,
        b1=optimizer.beta1,
        b2=optimizer.beta2,
        eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
        mask=mask,
    )


def lamb(
    optimizer: ConfigDict, schedule: optax.Schedule, mask: Callable
) -> optax.GradientTransformation:
    """Makes LAMB, algorithm 2 of You et al. 2020 (arXiv:1904.00962v5)."""
    return optax.chain(
        optax.scale_by_adam(optimizer.beta1, optimizer.beta2, optimizer.eps),
        optax.add_decayed_weights(optimizer.weight_decay, mask),
        optax.stateless(
            lambda updates, params: map_named(
                _scaled_by_trust_ratio, updates, params, mask(params)
            )
        ),
        optax.scale_by_learning_rate(schedule),
    )


def _scaled_by_trust_ratio(
    name: str, update: Array, param: Array, decays: bool
) -> Array:
    """Scales an update by (parameter norm / update norm).

    The paper's phi is the identity, as in its experiments. Its "layer" is a parameter
    array, or each layer's slice of a stacked array. As in the authors' code
    (tensorflow/addons, optimizers/lamb.py), the ratio is 1 for biases and LayerNorm,
    which do not decay, and if one of the norms is 0.
    """
    if not decays:
        return update
    axes = layer_axes(name, update.ndim)
    param_norm, update_norm = (
        jnp.sqrt(jnp.sum(jnp.square(x), axis=axes, keepdims=True))
        for x in (param, update)
    )
    both = (param_norm > 0) & (update_norm > 0)
    return update * jnp.where(both, param_norm / update_norm, 1.0)


def muon(
    optimizer: ConfigDict, schedule: optax.Schedule, mask: Callable
) -> optax.GradientTransformation:
    """Makes Muon for the encoder's matrices, Adam for all else (Jordan et al. 2024,
    kellerjordan.github.io/posts/muon): a small model needs far fewer steps.

    The update of an encoder's matrix is its momentum with all singular values near 1
    (Newton-Schulz, five steps). Other parameters' updates are Adam's, with `beta1` and
    `beta2`. Both decay as AdamW.

    Raises (its `init`):
      UserError: No parameter that learns is a matrix of an encoder.
    """
    names = getattr(mask, "axes", {})

    def sides(name: str, param: Any) -> contrib.MuonDimensionNumbers | None:
        return matrix_axes(name, param.ndim, names.get(name))

    def scale(name: str, update: Array) -> Array:
        """Scales an update to the length of Adam's."""
        found = sides(name, update)
        assert found is not None
        lengths = (math.prod(update.shape[axis] for axis in side) for side in found)
        return update * MUON_RMS * max(lengths) ** 0.5

    matrices = optax.chain(
        contrib.scale_by_muon(
            beta=MUON_MOMENTUM,
            eps=optimizer.eps,
            weight_dimension_numbers=functools.partial(map_named, sides),
        ),
        optax.stateless(lambda updates, _: map_named(scale, updates)),
    )
    rest = optax.scale_by_adam(optimizer.beta1, optimizer.beta2, optimizer.eps)

    def label(params: PyTree) -> PyTree[str]:
        labels = map_named(lambda *x: "matrices" if sides(*x) else "rest", params)
        # `optax.tree.map_params` passes a placeholder, which has no leaves.
        if "matrices" not in (leaves := jax.tree.leaves(labels)) and leaves:
            raise UserError(
                "config.optimizer.name=muon: no matrix of a Transformer encoder learns "
                "in this run; choose adamw"
            )
        return labels

    return optax.chain(
        optax.partition({"matrices": matrices, "rest": rest}, label),
        optax.add_decayed_weights(optimizer.weight_decay, mask),
        optax.scale_by_learning_rate(schedule),
    )


def matrix_axes(
    name: str, rank: int, names: Sequence[str | None] | None = None
) -> contrib.MuonDimensionNumbers | None:
    """Returns the axes of a parameter's inputs and of its outputs, between which it is
    a matrix. None means that it is not an encoder's matrix. Along other axes, which are
    stacked layers, `experts` and those before the first of _SIDES, it has separate
    matrices.

    Args:
      name: Path, such as bert/encoder/layer_0/attention/query/kernel.
      rank: Number of axes.
      names: Logical names of the axes. None means that only a kernel is a matrix:
        BERT's attention by its path, of other modules the last two axes.
    """
    if "encoder/" not in name:
        return None
    axes, module = layer_axes(name, rank), name.split("/")[:-1]
    known = [axis for axis in axes if names and names[axis] in _SIDES]
    if names and "embed" in names and len(known) > 1:
        sides = [x for x in axes if x >= known[0] and names[x] != "experts"]
        inputs = len(sides) - 1 if names[sides[-1]] == "embed" else 1
    elif name.endswith("/kernel") and len(axes) > 1:
        has_heads = not names and "attention" in module
        inputs = kernel_inputs(module) if has_heads else 1
        sides = [*(axes if has_heads else axes[-2:])]
    else:
        return None
    return contrib.MuonDimensionNumbers(tuple(sides[:inputs]), tuple(sides[inputs:]))
