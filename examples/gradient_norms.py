"""A transform of a gradient: the norm of each layer's is logged every 10 steps.

    python -m bert_jax.main --config=examples/gradient_norms.py

metrics.jsonl and TensorBoard have `grad_norm_embeddings`, `grad_norm_layer_0`, ...
"""

from typing import Any

import optax
from ml_collections import ConfigDict

from bert_jax.registry import TRANSFORMS
from bert_jax.training.transforms import Gradient, Gradients, Transform

extends = "tiny"


def with_norms(gradient: Gradient, task: Any) -> Gradient:
    def changed(*given: Any) -> Gradients:
        found = gradient(*given)
        parts = {"embeddings": found.params["bert"]["embeddings"]}
        parts |= found.params["bert"]["encoder"]
        norms = {f"grad_norm_{name}": optax.tree.norm(x) for name, x in parts.items()}
        return found._replace(metrics={**found.metrics, **norms})

    return changed


TRANSFORMS["gradient_norms"] = Transform(gradient=with_norms)


def get_config(config: ConfigDict) -> ConfigDict:
    config.train.transforms = ("gradient_norms",)
    config.train.log_every = 10
    return config
