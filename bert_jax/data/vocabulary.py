"""A vocabulary trained on an even sample of a corpus."""

import hashlib
import heapq
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from bert_jax import tokenization
from bert_jax.errors import UserError


def keyed_hash(seed: int, purpose: str, index: int) -> float:
    """A number in [0, 1) that depends on its arguments only."""
    digest = hashlib.blake2b(f"{seed} {purpose} {index}".encode(), digest_size=8)
    return int.from_bytes(digest.digest()) / 2**64


def sample(
    documents: Iterable[tuple[int, str]], max_bytes: int, seed: int
) -> list[str]:
    """Whole documents, each with the same chance, of `max_bytes` at most together.

    Documents are ranked by a hash of their index and the first ones kept, as many as
    fit. Only those are held in memory.

    Args:
      documents: (index, text).
      max_bytes: of UTF-8.
      seed: of the hash.

    Returns:
      the texts, in the order of the documents.
    """
    kept: list[tuple[float, int, str, int]] = []  # a heap, the last rank on top
    total, limit = 0, 1.0  # ranks from `limit` on did not fit
    for index, text in documents:
        rank = keyed_hash(seed, "vocabulary", index)
        if rank >= limit:
            continue
        size = len(text.encode())
        heapq.heappush(kept, (-rank, index, text, size))
        total += size
        while total > max_bytes:
            dropped, _, _, size = heapq.heappop(kept)
            total, limit = total - size, -dropped
    return [text for _, _, text, _ in sorted(kept, key=lambda entry: entry[1])]


def write(
    documents: Iterable[tuple[int, str]],
    wanted: ConfigDict,
    seed: int,
    identity: dict[str, Any],
    folder: Path,
) -> None:
    """Trains and saves vocab.txt, tokenizer.json and metadata.json.

    Args:
      documents: (index, text) of the training split.
      wanted: `config.tokenizer`.
      seed: of the sample.
      identity: what shaped the vocabulary, for the record.
      folder: an empty one.

    Raises:
      UserError: not one document is as short as `sample_bytes`.
    """
    start = time.monotonic()
    texts = sample(documents, wanted.sample_bytes, seed)
    if not texts:
        raise UserError(
            f"tokenizer.sample_bytes={wanted.sample_bytes}: a document drawn for the "
            "vocabulary is longer than this; raise it"
        )
    tokenizer = tokenization.train(texts, wanted.vocab_size, wanted.lowercase)
    tokenization.save(tokenizer, folder)
    special = tokenization.special_ids(tokenizer)._asdict()
    sampled = {
        "documents": len(texts),
        "bytes": sum(len(text.encode()) for text in texts),
    }
    with open(folder / "metadata.json", "w", encoding="utf-8") as file:
        json.dump(
            identity | {"special_ids": special, "sample": sampled}, file, indent=1
        )
    places = ", ".join(f"{name} {index}" for name, index in special.items())
    print(
        f"trained a vocabulary of {wanted.vocab_size:,} pieces on "
        f"{sampled['documents']:,} documents ({sampled['bytes'] / 1e6:.1f} MB) in "
        f"{time.monotonic() - start:.1f} s; special tokens: {places}",
        file=sys.stderr,
    )
