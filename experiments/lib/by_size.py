"""Subsets of a data set, the smaller ones within the larger."""

from collections.abc import Hashable, Sequence

import numpy as np
from jaxtyping import Int

from bert_jax.errors import UserError


def nested(labels: Sequence[Hashable], seed: int) -> Int[np.ndarray, "examples"]:
    """An order of the examples whose every beginning is a stratified random subset.

    Each class is shuffled and spread evenly over the order, so the first n examples
    have of each class its share of n, rounded up or down; a smaller subset is part of
    a larger one.
    """
    rng = np.random.default_rng(seed)
    place = np.empty(len(labels))
    codes = {label: code for code, label in enumerate(dict.fromkeys(labels))}
    classes = np.array([codes[label] for label in labels])
    for code in range(len(codes)):
        own = rng.permutation(np.flatnonzero(classes == code))
        place[own] = (np.arange(len(own)) + 0.5) / len(own)
    return np.argsort(place, kind="stable")


def sizes(text: str, available: int) -> list[int]:
    """The numbers of examples that --examples names, ascending; `all` is one.

    Raises:
      UserError: one is not a number from 2 to `available`.
    """
    parts = text.replace("all", str(available)).split(",")
    for part in parts:
        if not (part.isdecimal() and 2 <= int(part) <= available):
            raise UserError(
                f"--examples={text}: {part!r} is not a number from 2 to the "
                f"{available:,} training examples that there are, nor 'all'"
            )
    return sorted(set(map(int, parts)))
