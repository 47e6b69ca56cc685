"""The parameters of layers that are scanned (`scan_layers`)."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp


def stack_layers(params: dict, num_layers: int) -> dict:
    """Turns an unrolled encoder's parameters into a scanned one's (`scan_layers`).

    Args:
      params: parameters with `bert/encoder/layer_0` ..., plain or boxed with their
        logical axis names.
    """

    def stack(*leaves: Any) -> Any:
        if isinstance(leaves[0], nn.LogicallyPartitioned):
            value = jnp.stack([leaf.value for leaf in leaves])
            return leaves[0].replace(value=value, names=("layers", *leaves[0].names))
        return jnp.stack(leaves)

    encoder = params["bert"]["encoder"]
    layers = [encoder[f"layer_{index}"] for index in range(num_layers)]
    stacked = jax.tree.map(
        stack, *layers, is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned)
    )
    rest = {name: encoder[name] for name in encoder if not name.startswith("layer_")}
    bert = {**params["bert"], "encoder": {**rest, "layers": stacked}}
    return {**params, "bert": bert}
