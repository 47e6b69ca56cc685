"""Vectors of the tokens, counted on the training text (`task.word_initializer`).

Tokens that occur next to the same tokens get similar vectors: the largest singular
vectors of the positive pointwise mutual information of tokens and contexts (Levy,
Goldberg and Dagan 2015, section 3: contexts smoothed by a power of 0.75, singular
values by 0.5), so that pre-training need not begin from random word embeddings.
"""

import contextlib
import io

import numpy as np
import scipy.linalg
from jaxtyping import Float, Float32, Int

from bert_jax.data.prepare import Prepared
from bert_jax.errors import UserError
from bert_jax.runtime import storage

FORMAT = 1  # raise it when the same text would give other vectors
_CONTEXTS = 2048  # the most frequent tokens: others add little and cost the most
_WINDOW = 5  # tokens on each side, where one at a distance of d counts 1/d
_SMOOTHING = 0.75  # power of the contexts' frequencies
_RECORDS = 16_384  # pairs that are counted at a time


def word_vectors_of(data: Prepared, width: int) -> Float32[np.ndarray, "vocab width"]:
    """Returns the vectors, counted once and then kept next to the sentence pairs.

    Counting takes 50 kB for each token of the vocabulary.

    Args:
      data: Prepared data, whose training pairs are counted.
      width: Numbers in each vector.

    Returns:
      Vectors of length 1, or of zeros for tokens that the training pairs do not have.

    Raises:
      UserError: too little text for this width.
    """
    path = data.folder / f"word_vectors-{FORMAT}-{width}.npy"
    if path.exists():
        return np.load(io.BytesIO(path.read_bytes()))
    often = data.token_counts()
    contexts = np.argsort(-often, kind="stable")[:_CONTEXTS]
    values = positive_pmi(count_cooccurrences(data, contexts))
    seen = values.any(axis=1)
    if min(seen.sum(), len(contexts)) <= width:
        raise UserError(
            f"{data.folder}: {seen.sum()} pieces stand beside others, too few for "
            f"word vectors of {width}; more text is required, or "
            "--config.task.word_initializer=normal"
        )
    rows = np.zeros((len(values), width), np.float32)
    rows[seen] = singular_vectors(values[seen], width)
    file = io.BytesIO()
    np.save(file, rows)
    with contextlib.suppress(OSError):  # others' data, only to be read
        storage.write_atomically(path, file.getvalue())
    return rows


def count_cooccurrences(
    data: Prepared, contexts: Int[np.ndarray, " contexts"]
) -> Float[np.ndarray, "vocab contexts"]:
    """Counts how often each token is near each context: 1/d for a distance of d.

    A and B of a pair count separately: B may be from another document.
    """
    pieces, columns = len(data.token_counts()), len(contexts)
    column = np.full(pieces, -1)
    column[contexts] = np.arange(columns)
    total = np.zeros((pieces, columns))
    table = data.table("train")
    for begin in range(0, table.rows, _RECORDS):
        pairs = table.take(np.arange(begin, min(begin + _RECORDS, table.rows)))
        tokens, size_a = pairs["tokens"], pairs["size_a"].values
        lengths = np.stack([size_a, tokens.sizes() - size_a], axis=1).ravel()
        part = np.repeat(np.arange(len(lengths)), lengths)
        for distance in range(1, _WINDOW + 1):
            together = part[distance:] == part[:-distance]
            left = tokens.values[:-distance][together]
            right = tokens.values[distance:][together]
            for piece, context in ((left, right), (right, left)):
                place = column[context]
                known = place >= 0
                np.add.at(total, (piece[known], place[known]), 1 / distance)
    return total


def positive_pmi(
    near: Float[np.ndarray, "vocab contexts"],
) -> Float[np.ndarray, "vocab contexts"]:
    """Returns the pointwise mutual information of tokens and contexts where it is
    positive, else 0."""
    often = near.sum(axis=1, keepdims=True)
    contexts = near.sum(axis=0) ** _SMOOTHING
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(near * contexts.sum() / (often * contexts))
    return np.where(values > 0, values, 0)


def singular_vectors(
    values: Float[np.ndarray, "vocab contexts"], width: int
) -> Float[np.ndarray, "vocab width"]:
    """Returns the largest left singular vectors times the roots of their values.

    They are centered and rotated, so that every unit has the same share, and each has
    length 1. They are the same in each run, but where singular values are equal.
    """
    count = values.shape[1]
    largest = [count - width, count - 1]
    squares, right = scipy.linalg.eigh(values.T @ values, subset_by_index=largest)
    # A vector's sign is arbitrary: the largest number becomes positive.
    right *= np.sign(right[np.abs(right).argmax(axis=0), np.arange(width)])
    # Where the values have a lower rank, the other columns are 0.
    left = values @ right / np.maximum(squares, 1e-12 * squares[-1]) ** 0.25
    left -= left.mean(axis=0)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(width, width)))[0]
    left = left @ turn
    return left / np.linalg.norm(left, axis=1, keepdims=True)
