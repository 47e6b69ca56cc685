"""The trees of an encoder's layers: one after another, or stacked for a scan."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bert_jax.errors import UserError


def stack_layers(params: dict, num_layers: int) -> dict:
    """Turns an unrolled encoder's parameters into a scanned one's (`scan_layers`).

    Args:
      params: Parameters with `bert/encoder/layer_0` ..., plain or boxed with their
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


def unstack_layers(params: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a scanned encoder's parameters to an unrolled one's."""
    stacked = params.get("bert", {}).get("encoder", {}).get("layers")
    if stacked is None:
        return dict(params)
    rest = {k: v for k, v in params["bert"]["encoder"].items() if k != "layers"}
    encoder = rest | {
        f"layer_{index}": jax.tree.map(lambda leaf, i=index: leaf[i], stacked)
        for index in range(len(jax.tree.leaves(stacked)[0]))
    }
    return {**params, "bert": {**params["bert"], "encoder": encoder}}


def attention_probabilities(
    kept: Mapping[str, Any],
) -> list[Float[Array, "batch heads from to"]]:
    """Returns each layer's probabilities from `intermediates` of a model with a trunk
    `bert`. Raises UserError if its attention returns none."""
    layers = kept.get("bert", {}).get("encoder")
    if layers is None:
        raise UserError(
            "the attention of config.model.attention returns None for its "
            "probabilities; return them, set einsum, or leave out what reads them"
        )
    if "layers" in layers:  # scanned
        return [*layers["layers"]["attention"]["probabilities"][0]]
    # A layer that is applied several times has kept as many.
    return [
        each
        for index in range(len(layers))
        for each in layers[f"layer_{index}"]["attention"]["probabilities"]
    ]
