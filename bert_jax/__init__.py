"""BERT in JAX and Flax, from raw text to exported weights."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_jax.api import fit, load, make_config

__all__ = ("fit", "load", "make_config")
__version__ = "1.0.0"


def __getattr__(name: str) -> Any:
    """Returns an attribute of `api`, imported on use: data preparation needs no JAX."""
    if name not in __all__:
        raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
    from bert_jax import api

    return getattr(api, name)
