"""A model's initial parameters, drawn array by array."""

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array, Key

from bert_jax.types import ParamPath


def param_path(keys: Sequence[Any]) -> ParamPath:
    """Returns the path of a leaf, such as (bert, pooler, kernel), from JAX's keys."""
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in keys)


class InitialParams:
    """The parameters that a function of a key returns, which is traced once.

    Attributes:
      shapes: Shapes and dtypes of the parameters, boxed with logical axis names.
    """

    def __init__(self, init: Callable[[Key[Array, ""]], dict]):
        """Traces `init`. Computes nothing."""
        traced = jax.jit(init).trace(jax.random.key(0))
        self._program = traced.jaxpr
        self.shapes: Any = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), traced.out_info
        )

    def draw(
        self, key: Key[Array, ""], others: Collection[ParamPath] = ()
    ) -> dict[ParamPath, Array]:
        """Returns the values by path, without boxes.

        It runs the operations one by one, not as one program, which would compile each
        array's random numbers. Arrays of one size share theirs.

        Args:
          others: Paths of the parameters that are not drawn.
        """
        leaves = jax.tree.leaves_with_path(nn.meta.unbox(self.shapes))
        paths = [param_path(keys) for keys, _ in leaves]
        chosen = [path not in others for path in paths]
        needed, _ = dce_jaxpr(self._program.jaxpr, chosen, instantiate=True)
        found = jaxpr_as_fun(self._program.replace(jaxpr=needed))(key)
        values = map(jnp.asarray, found)  # a constant is no array
        return dict(zip(itertools.compress(paths, chosen), values, strict=True))
