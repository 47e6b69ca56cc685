"""Reads a vocab.txt."""

from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path


def pieces(path: Path, content: str) -> list[str]:
    """The lines of a vocab.txt; raises UserError if it is empty or a piece repeats."""
    # Split at "\n" only: U+2028 is a piece in the Chinese vocabulary.
    vocabulary = [line.removesuffix("\r") for line in content.split("\n")]
    if not vocabulary[-1]:
        vocabulary.pop()
    if not vocabulary:
        raise UserError(f"{path}: the vocabulary is empty; write one piece per line")
    lines: dict[str, int] = {}
    for number, piece in enumerate(vocabulary, 1):
        if (first := lines.setdefault(piece, number)) != number:
            raise UserError(
                f"{path}:{number}: {piece!r} is already in line {first}; remove one of "
                "the two"
            )
    return vocabulary
