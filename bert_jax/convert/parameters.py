"""Parameters of a model, and their form in PyTorch.

A kernel is [inputs..., outputs...] here, and [outputs, inputs] in PyTorch.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from flax.traverse_util import flatten_dict
from jaxtyping import Float32

from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig
from bert_jax.models.heads import init_model
from bert_jax.models.layers import kernel_inputs
from bert_jax.types import ParamPath

Array = Float32[np.ndarray, "..."]
Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter: its path and shape here, and its tensor in `transformers`.

    Attributes:
      path: Its keys in the parameters.
      shape: Its shape there.
      name: Name of the tensor. Empty means that there is none, and zeros are read.
      fused: Its index, and the number of parameters that one tensor of theirs joins
        along its outputs.
      conv: Whether PyTorch keeps the kernel as [inputs, outputs] (`Conv1D`).
    """

    path: ParamPath
    shape: Shape
    name: str
    fused: tuple[int, int] = (0, 1)
    conv: bool = False

    def get_value(self, params: Mapping[str, Any]) -> Any:
        """Returns its value among a model's, a NumPy or JAX array."""
        return functools.reduce(lambda tree, key: tree[key], self.path, params)

    @property
    def flat_shape(self) -> Shape:
        """Its shape as a vector, or as a matrix [inputs, outputs]."""
        if self.path[-1] == "embedding":
            return self.shape
        if self.path[-1] != "kernel":
            return (math.prod(self.shape),)
        inputs = kernel_inputs(self.path[:-1])
        return math.prod(self.shape[:inputs]), math.prod(self.shape[inputs:])

    @property
    def _is_transposed(self) -> bool:
        return self.path[-1] == "kernel" and not self.conv

    @property
    def axis(self) -> int:
        """The axis of the outputs in their tensor."""
        return 0 if self._is_transposed else -1

    @property
    def torch_shape(self) -> Shape:
        shape = [*(self.flat_shape[::-1] if self._is_transposed else self.flat_shape)]
        shape[self.axis] *= self.fused[1]
        return tuple(shape)

    def convert_from_torch(self, array: Array) -> Array:
        """Converts their array to ours."""
        index, count = self.fused
        part = np.split(array, count, self.axis)[index]
        part = part.T if self._is_transposed else part
        return np.ascontiguousarray(part.reshape(self.shape))

    def convert_to_torch(self, array: Array) -> Array:
        """Converts our array to theirs, or to its part of theirs."""
        array = array.reshape(self.flat_shape)
        return np.ascontiguousarray(array.T if self._is_transposed else array)


@functools.lru_cache
def parameter_shapes(
    config: BertConfig, heads: tuple[str, ...], labels: int
) -> dict[ParamPath, Shape]:
    """Returns the shape of each parameter of a model that is not scanned, by its path.

    Args:
      heads: Names of heads.
      labels: Number of outputs of a head that has one for each label.
    """
    count = config.num_hidden_layers
    few = dataclasses.replace(
        config, num_hidden_layers=min(count, 2), scan_layers=False, remat="none"
    )
    family = FAMILIES[config.architecture]
    model = family.with_heads(few, heads, labels=labels or 1)
    init = functools.partial(init_model, model)
    tree = nn.meta.unbox(jax.eval_shape(init, jax.random.key(0)))
    shapes = {path: leaf.shape for path, leaf in flatten_dict(tree).items()}
    second = {path: shape for path, shape in shapes.items() if "layer_1" in path}
    for index in range(2, count):  # layers like the second
        shapes |= {
            tuple(f"layer_{index}" if key == "layer_1" else key for key in path): shape
            for path, shape in second.items()
        }
    return shapes
