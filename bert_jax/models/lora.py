"""LoRA (Hu et al. 2021, arXiv:2106.09685): thin matrices that learn, in place of the
matrices of a trained encoder, which do not.

They are parameters beside the model's, `a` [inputs, rank] and `b` [rank, outputs] under
`lora/` and the path of their matrix. The model itself reads that matrix plus their
product, times alpha / rank (`merge`). So no model knows of them.
"""

import functools
import zlib
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, Float, Key
from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.models.initial import InitialParams
from bert_jax.models.layers import kernel_inputs
from bert_jax.types import ParamPath, Params

NAME = "lora"  # of the adapters among the parameters


def init_params(
    initial: InitialParams,
    base: Mapping[str, Any],
    model: ConfigDict,
    key: Key[Array, ""],
) -> dict:
    """Returns the initial parameters of a run: the model's that the base lacks, and the
    adapters. Each is boxed with its logical axis names.

    The same key gives the same values whether the layers are stacked or not.

    Args:
      initial: All parameters of the model.
      base: Parameters that do not learn.
      model: Fields of config.model, of which the ranks and targets are read.

    Raises:
      UserError: A target names no matrix of the base.
    """
    frozen, boxed = flatten_dict(base), flatten_dict(initial.shapes)
    drawn = initial.draw(key, frozen)
    found = {path: nn.meta.replace_boxed(boxed[path], x) for path, x in drawn.items()}
    kernels = [x for x in frozen if "encoder" in x and x[-1] == "kernel"]
    names = {path: "/" + "/".join(path[:-1]) for path in kernels}
    for target in model.lora_targets:
        if not any(name.endswith(f"/{target}") for name in names.values()):
            known = dict.fromkeys("/".join(path[3:-1]) for path in kernels)
            raise UserError(
                f"config.model.lora_targets: {target!r} names no matrix of the "
                f"encoder, which has {', '.join(known) or 'none'}"
            )
    endings = tuple(f"/{target}" for target in model.lora_targets)
    for path in [x for x in kernels if names[x].endswith(endings)]:
        own = jax.random.fold_in(key, zlib.crc32("/".join(path[3:-1]).encode()))
        for name, box in _adapter(path, boxed[path], model.lora_rank, own).items():
            found[NAME, *path[:-1], name] = box
    return unflatten_dict(found)


def _adapter(
    path: ParamPath, box: Any, rank: int, key: Key[Array, ""]
) -> dict[str, nn.LogicallyPartitioned]:
    """Returns the first values of a kernel's two matrices, `a` as PEFT draws it: evenly
    up to 1 / sqrt(inputs). Their product is 0."""
    layers = box.value.shape[:1] if "layers" in path else ()
    split = len(layers) + kernel_inputs(path[:-1])
    inputs, outputs = box.value.shape[len(layers) : split], box.value.shape[split:]
    limit = np.prod(inputs) ** -0.5

    def draw(layer: Any) -> Float[Array, "..."]:
        own = jax.random.fold_in(key, layer)
        return jax.random.uniform(own, (*inputs, rank), minval=-limit, maxval=limit)

    if layers:
        a = jax.vmap(draw)(jnp.arange(*layers))
    else:
        a = draw(next((int(x[6:]) for x in path if x.startswith("layer_")), 0))
    b, names = jnp.zeros((*layers, rank, *outputs)), box.names
    return {
        "a": nn.LogicallyPartitioned(a, (*names[:split], None)),
        "b": nn.LogicallyPartitioned(b, (*names[: len(layers)], None, *names[split:])),
    }


def merge(params: Params, model: ConfigDict) -> Params:
    """Returns a model's parameters, each adapted matrix with its adapters' product.

    Args:
      params: The model's parameters and `lora`.
      model: Fields of config.model.
    """
    flat = flatten_dict({name: x for name, x in params.items() if name != NAME})
    adapters, scale = flatten_dict(params[NAME]), model.lora_alpha / model.lora_rank
    product = functools.partial(jnp.tensordot, axes=1, precision="highest")
    for *module, last in adapters:
        if last == "a":
            a, b = (adapters[*module, name] for name in ("a", "b"))
            times = jax.vmap(product) if "layers" in module else product
            flat[*module, "kernel"] = flat[*module, "kernel"] + scale * times(a, b)
    return unflatten_dict(flat)
