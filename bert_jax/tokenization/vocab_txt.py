"""Reads a vocab.txt."""

from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path
from bert_jax.tokenization.wordpiece import unused_names


def pieces(path: Path, content: str) -> list[str]:
    """Reads the pieces by id, as `transformers` does.

    Every line is an id. White space at its end is no part of the piece. Of equal lines,
    blank ones too, the last counts; the other ids get names that no text has.

    Raises:
      UserError: the file is empty.
    """
    # Split at "\n" only: U+2028 is a piece in the Chinese vocabulary.
    lines = [x.rstrip(" \t\r") for x in content.removesuffix("\n").split("\n")]
    if not any(lines):
        raise UserError(f"{path}: the vocabulary is empty; write one piece per line")
    ids = {line: index for index, line in enumerate(lines)}
    spare = unused_names(ids)
    return [x if ids[x] == index else next(spare) for index, x in enumerate(lines)]
