"""Duplicates among all documents, from a fingerprint of each in a file.

A fingerprint has 376 bytes, whatever the length of the document, and is on disk only
while the text is cleaned. Memory holds some 85 bytes a document.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt64

from bert_jax.data.cleaning import minhash
from bert_jax.data.cleaning.settings import Settings

_EXCERPT = 120  # bytes of text, to show what was taken
PRINT = np.dtype(
    [
        ("document", np.int64),  # its number, from 0
        ("bytes", np.int64),  # of its text
        ("key", np.uint64, 2),  # 128 bits, equal for equal words
        ("signature", np.uint16, minhash.NUMBERS),
        ("excerpt", f"S{_EXCERPT}"),
    ]
)


class Duplicate(NamedTuple):
    """A document that a stage takes."""

    document: int
    stage: str
    bytes: int
    excerpt: str
    of: int  # the document that stays
    excerpt_of: str


def fingerprint(
    number: int, text: str, words: UInt64[np.ndarray, " words"], near: bool
) -> np.ndarray:
    """The fingerprint of a document, one PRINT.

    Args:
      words: of the text, from `grams.words`.
      near: with its signature, which takes most of the time.
    """
    row = np.zeros(1, PRINT)
    row["document"], row["bytes"] = number, len(text.encode())
    digest = hashlib.blake2b(words.tobytes(), digest_size=16).digest()
    row["key"] = np.frombuffer(digest, "<u8")
    if near:
        row["signature"] = minhash.signature(words)
    row["excerpt"] = excerpt(text).encode()[:_EXCERPT]
    return row


def excerpt(text: str) -> str:
    """The beginning of a text, in one line."""
    return " ".join(text[: 2 * _EXCERPT].split())[:_EXCERPT]


def find(prints: np.ndarray, settings: Settings) -> Iterator[Duplicate]:
    """The documents to take, in order; of each group the first one stays.

    Args:
      prints: of type PRINT, in the order of the documents; may be a file (`np.memmap`).
    """
    rows = np.arange(len(prints))
    first = dict.fromkeys(settings.stages, rows)
    if "exact_duplicates" in first:
        first["exact_duplicates"] = _equal(prints["key"])
    if "near_duplicates" in first:  # equal words have equal signatures too
        signatures = prints["signature"]
        first["near_duplicates"] = minhash.clusters(signatures, settings.similarity)
    taken = np.logical_or.reduce([first_of != rows for first_of in first.values()])
    for row in np.flatnonzero(taken):
        stage = next(stage for stage, first_of in first.items() if first_of[row] != row)
        one, other = prints[row], prints[first[stage][row]]
        yield Duplicate(
            int(one["document"]),
            stage,
            int(one["bytes"]),
            one["excerpt"].decode("utf-8", "ignore"),
            int(other["document"]),
            other["excerpt"].decode("utf-8", "ignore"),
        )


def _equal(keys: UInt64[np.ndarray, "rows 2"]) -> Int64[np.ndarray, " rows"]:
    """The first row with the same key as each."""
    keys = np.ascontiguousarray(keys)
    order = np.lexsort((keys[:, 0], keys[:, 1]))  # stable: equal ones in their order
    new = np.ones(len(keys), bool)
    new[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
    first = np.empty(len(keys), np.int64)
    first[order] = order[new][np.cumsum(new) - 1]
    return first
