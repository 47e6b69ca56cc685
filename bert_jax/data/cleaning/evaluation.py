"""Text that a model will be tested on: sequences of words that training text must lack.

As GPT-3's authors did (Brown et al. 2020, appendix C), with sequences of 13 words.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt64

from bert_jax.data import digests, lines
from bert_jax.data.cleaning import grams
from bert_jax.errors import UserError
from bert_jax.runtime import storage

_BLOCK = 1 << 20  # characters read at a time


def files(patterns: Sequence[str]) -> dict[str, list[str | int]]:
    """The files that match any of the patterns.

    Raises:
      UserError: a pattern matches none.
    """
    every: dict[str, list[str | int]] = {}
    for pattern in patterns:
        matching = storage.find(pattern)
        if not matching:
            raise UserError(f"config.corpus.clean_against: no file matches {pattern!r}")
        every |= matching
    return dict(sorted(every.items()))


def identity(patterns: Sequence[str], data_dir: storage.Path) -> list[str]:
    """The digests of the files' contents, sorted."""
    return sorted(set(digests.of_files(files(patterns), data_dir)))


def sequences(patterns: Sequence[str], size: int) -> UInt64[np.ndarray, " sequences"]:
    """The hashes of all `size` words in a row of the files' texts, sorted.

    A text of a JSON file (NAME.json, NAME.jsonl) is any string in it; any other file
    is one text, whatever its columns. Compressed files are read as sources are.

    Raises:
      UserError: a file cannot be read, is no text, or has no text of `size` words.
    """
    every = [np.zeros(0, np.uint64)]
    for path in files(patterns):
        hashes = [grams.grams(words, size) for words in _texts(path, size)]
        if not any(map(len, hashes)):
            raise UserError(
                f"{path}: has no text of {size} words (config.corpus.clean_overlap_"
                "words), so nothing can share them; leave it out"
            )
        every.append(np.unique(np.concatenate(hashes)))
    return np.unique(np.concatenate(every))


def holds(
    words: UInt64[np.ndarray, " words"],
    known: UInt64[np.ndarray, " sequences"],
    size: int,
) -> Bool[np.ndarray, " words"]:
    """Which words stand in a known sequence.

    Args:
      known: sorted; may be a file (`np.memmap`).
    """
    hashes = grams.grams(words, size)
    place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    marks = np.zeros(len(words), bool)
    for start in np.flatnonzero(known[place] == hashes):
        marks[start : start + size] = True
    return marks


def _texts(path: str, size: int) -> Iterator[UInt64[np.ndarray, " words"]]:
    name = lines.uncompressed(path)
    if name.endswith(".json"):
        whole = "\n".join(line for _, line in lines.read_lines(path))
        yield from map(grams.words, _strings(path, whole))
    elif name.endswith(".jsonl"):
        for number, line in lines.read_lines(path):
            if line.strip():
                yield from map(grams.words, _strings(f"{path}:{number}", line))
    else:
        before = np.zeros(0, np.uint64)
        for block in _blocks(path):
            words = np.concatenate([before, grams.words(block)])
            yield words
            before = words[max(0, len(words) - size + 1) :]


def _blocks(path: str) -> Iterator[str]:
    """A file's lines, many at a time."""
    block, size = [], 0
    for _, line in lines.read_lines(path):
        block.append(line)
        size += len(line)
        if size >= _BLOCK:
            yield "\n".join(block)
            block, size = [], 0
    yield "\n".join(block)


def _strings(where: str, text: str) -> list[str]:
    try:
        waiting = [json.loads(text)]
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: is not JSON ({error})") from error
    strings = []
    while waiting:
        value: Any = waiting.pop()
        if isinstance(value, str):
            strings.append(value)
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return strings
