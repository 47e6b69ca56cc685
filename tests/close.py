"""The tolerance of results computed in float32, on any machine."""

from typing import Any

import jax
import numpy as np

EPSILON = 2.0**-23  # the machine epsilon of float32
# Terms summed into one value. A small model's output: 64 units in each of up to 64
# sums. A gradient: the same for each of 256 tokens.
TERMS, GRADIENT_TERMS = 64 * 64, 64 * 64 * 256


def tolerance(expected: Any, terms: int = TERMS) -> float:
    """Returns the absolute error that rounding may leave in sums of `terms` terms.

    Each addition rounds by at most EPSILON of the largest value. Roundings have either
    sign, so that their sum grows as the square root of their number. The error of a
    small value is not relative to itself: it may be the difference of large ones.

    Args:
      expected: Array, or a tree of arrays, such as gradients.
    """
    largest = max(np.abs(leaf).max(initial=0.0) for leaf in _leaves(expected))
    return float(EPSILON * np.sqrt(terms) * largest)


def assert_close(
    actual: Any, expected: Any, terms: int = TERMS, name: str = ""
) -> None:
    """Asserts that an array, or a tree of arrays, is `expected` within `tolerance`."""
    limit = tolerance(expected, terms)
    for one, other in zip(_leaves(actual), _leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=limit, err_msg=name)


def equal(a: Any, b: Any) -> bool:
    """Returns whether two trees are the same bit for bit."""
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        jax.tree.leaves(jax.tree.map(np.array_equal, a, b))
    )


def _leaves(tree: Any) -> list[np.ndarray]:
    """Returns the arrays of a tree. A list of numbers is an array."""
    tree = jax.tree.leaves(tree) if isinstance(tree, dict | tuple) else [tree]
    return [np.asarray(leaf, np.float64) for leaf in tree]
