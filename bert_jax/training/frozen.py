"""Parameters that do not learn: `config.optimizer.frozen`, prefixes of their paths.

They get no gradient, no moments and no weight decay, and have no part in the gradient's
norm.
"""

from collections.abc import Callable, Collection
from typing import Any

import jax
import optax
from jaxtyping import PyTree

from bert_jax.errors import UserError

_NAMED = 12  # the most parts that an error lists


def mask(params: Any, prefixes: Collection[str]) -> PyTree[bool]:
    """True for parameters whose path has one of the prefixes, part by part: `bert/enc`
    is no prefix of `bert/encoder`."""

    def is_frozen(path: tuple, _: Any) -> bool:
        return any(f"{_name(path)}/".startswith(f"{part}/") for part in prefixes)

    return jax.tree_util.tree_map_with_path(is_frozen, params)


def loss_of_the_rest(loss: Callable, prefixes: Collection[str]) -> Callable:
    """A loss function whose gradient is 0 for the frozen parameters."""

    def frozen_loss(params: Any, *rest: Any) -> Any:
        stop, frozen = jax.lax.stop_gradient, mask(params, prefixes)
        kept = jax.tree.map(lambda no, x: stop(x) if no else x, frozen, params)
        return loss(kept, *rest)

    return frozen_loss if prefixes else loss


def leaving_out(
    optimizer: optax.GradientTransformation, prefixes: Collection[str]
) -> optax.GradientTransformation:
    """The optimizer, of the parameters that learn; it holds nothing for the others.

    Its `init` raises UserError if a prefix names no parameter, or all are frozen.
    """
    if not prefixes:
        return optimizer

    def learns(params: Any) -> PyTree[bool]:
        return jax.tree.map(lambda is_frozen: not is_frozen, mask(params, prefixes))

    masked = optax.chain(
        optax.masked(optimizer, learns),
        optax.masked(optax.set_to_zero(), lambda params: mask(params, prefixes)),
    )

    def init(params: optax.Params) -> optax.OptState:
        _check(params, prefixes)
        return masked.init(params)

    return optax.GradientTransformationExtraArgs(init, masked.update)


def _check(params: Any, prefixes: Collection[str]) -> None:
    paths = [_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    if not paths:  # `optax.tree.map_params` asks with a placeholder
        return
    for prefix in prefixes:
        if not any(f"{path}/".startswith(f"{prefix}/") for path in paths):
            raise UserError(
                f"config.optimizer.frozen: {prefix!r} names no parameter; there are "
                f"{_listed(paths)}, and the parts below them (--mode=describe)"
            )
    if all(jax.tree.leaves(mask(params, prefixes))):
        raise UserError(
            f"config.optimizer.frozen={tuple(prefixes)}: names all parameters, so "
            "that nothing would learn; leave one out"
        )


def _listed(paths: list[str]) -> str:
    """The parts, two steps deep."""
    parts = list(dict.fromkeys("/".join(path.split("/")[:2]) for path in paths))
    more = ", ..." if len(parts) > _NAMED else ""
    return ", ".join(parts[:_NAMED]) + more


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
