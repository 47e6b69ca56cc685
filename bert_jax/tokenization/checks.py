"""What a vocabulary's file must be."""

import json
import math
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer

from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path

MAX_GROWTH = 64  # of a text, by a normalizer


def ids(path: Path, tokenizer: Tokenizer) -> None:
    """Raises UserError if an id would have no row in the embeddings."""
    every = tokenizer.get_vocab(with_added_tokens=True).values()
    if sorted(every) != list(range(len(every))):
        raise UserError(
            f"{path}: the ids of its {len(every)} pieces must be 0 to "
            f"{len(every) - 1}, each once; renumber them"
        )
    added = tokenizer.encode("", "").ids  # what the post-processor adds to texts
    if any(index >= len(every) for index in added):
        raise UserError(
            f"{path}: its post_processor adds the id {max(added)}, but there are "
            f"{len(every)} pieces; correct it"
        )


def growth(path: Path, tokenizer: Tokenizer) -> None:
    """Raises UserError if a normalizer's rules may make a text far longer.

    A rule that writes a thousand characters for one, three times in a row, would fill
    the memory with the first text.
    """
    # The normalizer's part of tokenizer.json; the whole may have megabytes.
    rules = tokenizer.normalizer
    times = math.prod(_written(json.loads(rules.__getstate__()))) if rules else 1
    if times > MAX_GROWTH:
        raise UserError(
            f"{path}: its normalizer may make a text {times:,} times as long; the "
            f"limit is {MAX_GROWTH}: shorten what its Replace and Prepend rules write"
        )


def _written(rule: Any) -> Iterator[int]:
    """Characters that each rule of a normalizer writes for one."""
    yield max(1, len(rule.get("content", "")), len(rule.get("prepend", "")))
    for part in rule.get("normalizers", ()):
        yield from _written(part)
