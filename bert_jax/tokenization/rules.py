"""What a tokenizer.json that another program has written may do to a text."""

import base64
import json
import math
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer, models

from bert_jax.errors import UserError
from bert_jax.runtime.storage import Path

# Of a text, by what comes before the model; SentencePiece's own rules count 76.
MAX_GROWTH = 128
MAX_CHARACTERS = 1000  # of a word that is cut into pieces


def check(path: Path, tokenizer: Tokenizer) -> None:
    """Checks the rules, and makes them give the same pieces each time.

    Raises:
      UserError: a text could become far longer, take hours, or fail.
    """
    _check_growth(path, tokenizer)
    _check_model(path, tokenizer)
    if isinstance(tokenizer.model, models.BPE):
        tokenizer.model.dropout = None


def _check_growth(path: Path, tokenizer: Tokenizer) -> None:
    """Looks at what comes before the model.

    A rule that writes a thousand characters for one, three times in a row, would fill
    the memory with the first text.
    """
    # These parts of tokenizer.json; the whole may have megabytes.
    parts = filter(None, (tokenizer.normalizer, tokenizer.pre_tokenizer))
    rules = [json.loads(part.__getstate__()) for part in parts]
    times = math.prod(count for rule in rules for count in _written(rule))
    if times > MAX_GROWTH:
        raise UserError(
            f"{path}: its rules may make a text {times:,} times as long; the limit is "
            f"{MAX_GROWTH}: shorten what its normalizer and pre_tokenizer write"
        )


def _written(rule: Any) -> Iterator[int]:
    """Characters that each rule may write for one."""
    text = len(rule.get("content", "") or rule.get("prepend", ""))
    match rule.get("type"):
        case "Replace" if not rule["pattern"].get("String"):
            yield text + 1  # where nothing stands as well, and the character stays
        case "ByteLevel":
            yield 4  # one for each byte
        case "Metaspace":
            yield 2
        case "Precompiled":
            table = base64.b64decode(rule["precompiled_charsmap"] or "")
            start = 4 + int.from_bytes(table[:4], "little")
            yield 1 + max(
                map(len, table[start:].decode("utf-8", "replace").split("\0"))
            )
        case _:
            yield max(1, text)
    for part in (*rule.get("normalizers", ()), *rule.get("pretokenizers", ())):
        yield from _written(part)


def _check_model(path: Path, tokenizer: Tokenizer) -> None:
    """Looks at what the model does with what it does not know.

    The time that a WordPiece takes of a word grows with the third power of its length.
    """
    model = tokenizer.model
    longest = getattr(model, "max_input_chars_per_word", 0)
    if longest > MAX_CHARACTERS:
        raise UserError(
            f"{path}: max_input_chars_per_word={longest:,} of its model is more than "
            f"{MAX_CHARACTERS:,}; BERT's is 100"
        )
    try:
        model.tokenize("\U0010ffff")
    except Exception as error:  # the library raises nothing narrower
        raise UserError(
            f"{path}: its model fails at an unknown character ({error}); name a piece "
            "of its vocabulary as its unk_token"
        ) from error
