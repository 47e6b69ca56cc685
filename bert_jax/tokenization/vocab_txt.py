"""Reads a vocab.txt."""

import re

from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path
from bert_jax.tokenization.wordpiece import unused_names

# White space at a line's end, as Unicode has it (Python counts four separators more),
# but for U+2028, a piece of the Chinese vocabulary.
_END = re.compile(r"[^\S\x1c-\x1f\u2028]+\Z")


def pieces(path: Path, content: str) -> list[str]:
    """Reads the pieces by id, as `transformers` does.

    Every line is an id. White space at its end is no part of the piece. Of equal lines,
    blank ones too, the last counts; the other ids get names that no text has.

    Raises:
      UserError: the file is empty.
    """
    # Not str.splitlines, which splits at U+2028.
    every = content.removesuffix("\n").split("\n")
    lines = [_END.sub("", x) or x.rstrip(" \t\r") for x in every]
    if not any(lines):
        raise UserError(f"{path}: the vocabulary is empty; write one piece per line")
    ids = {line: index for index, line in enumerate(lines)}
    spare = unused_names(ids)
    return [x if ids[x] == index else next(spare) for index, x in enumerate(lines)]
