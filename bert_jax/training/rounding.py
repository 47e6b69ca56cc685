"""Rounds, once, the parameters that a model rounds in each call."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

# What moves numbers and leaves them as they are.
_MOVES = {
    *("broadcast_in_dim", "concatenate", "copy", "reshape", "sharding_constraint"),
    *("slice", "squeeze", "transpose"),
}


def round_once(params: Any, traced: jax.stages.Traced) -> Any:
    """Returns parameters with which a function of (params, batch) computes the same.

    A parameter is rounded if all that reads it rounds it first, to one dtype: with
    `model.dtype=bfloat16` kernels, but no embeddings, which are summed in float32.

    Args:
      traced: The function, traced with `params`.
    """
    leaves, tree = jax.tree.flatten(params)
    jaxpr = traced.jaxpr.jaxpr
    rounded = []
    for leaf, variable in zip(leaves, jaxpr.invars, strict=False):
        dtypes = list(set(_dtypes(jaxpr, variable)))
        is_rounded = len(dtypes) == 1 and jnp.issubdtype(dtypes[0], jnp.floating)
        rounded.append(leaf.astype(dtypes[0]) if is_rounded else leaf)
    return jax.tree.unflatten(tree, rounded)


def _dtypes(jaxpr: Jaxpr, variable: Any) -> Iterator[Any]:
    """Yields the dtypes that a variable is read in, its own where it is not cast."""
    own: Any = variable.aval.dtype
    if any(each is variable for each in jaxpr.outvars):
        yield own
    for equation in jaxpr.eqns:
        for index, read in enumerate(equation.invars):
            if read is not variable:
                continue
            inner = [
                x.jaxpr if isinstance(x, ClosedJaxpr) else x
                for x in equation.params.values()
                if isinstance(x, ClosedJaxpr | Jaxpr)
            ]
            if equation.primitive.name == "convert_element_type":
                yield equation.params["new_dtype"]
            elif equation.primitive.name in _MOVES:
                yield from _dtypes(jaxpr, equation.outvars[0])
            elif len(inner) == 1 and len(inner[0].invars) == len(equation.invars):
                yield from _dtypes(inner[0], inner[0].invars[index])
            else:
                yield own
