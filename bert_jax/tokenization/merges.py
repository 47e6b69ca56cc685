"""Files of a byte-pair vocabulary: vocab.json, and merges.txt next to it."""

import json

from tokenizers import Tokenizer, models

from bert_jax.errors import UserError, first_line
from bert_jax.runtime.storage import Path

VOCABULARY, MERGES = "vocab.json", "merges.txt"
Pair = tuple[str, str]


def read(path: Path, content: str) -> tuple[dict[str, int], list[Pair]]:
    """Returns each token's id, and the merges, the first ones first.

    Args:
      path: Path of the vocab.json. merges.txt is next to it.
      content: Content of the vocab.json.

    Raises:
      UserError: a file is missing or damaged, or they are of two vocabularies.
    """
    try:
        pieces = json.loads(content)
        text = (path.parent / MERGES).read_bytes().decode("utf-8-sig")
        lines = text.replace("\r\n", "\n").split("\n")
        if lines[0].startswith("#version"):
            del lines[0]
        merges = [(a, b) for a, b in (line.split(" ") for line in lines if line)]
        models.BPE(vocab=pieces, merges=merges)
    except Exception as error:  # `tokenizers` raises nothing narrower
        raise UserError(
            f"{path}, and {MERGES} beside it: not the two files of one byte-pair "
            f"vocabulary ({first_line(error)})"
        ) from error
    return pieces, merges


def contents(tokenizer: Tokenizer) -> dict[str, str]:
    """Returns both files' contents, by name."""
    model = json.loads(tokenizer.to_str())["model"]
    ordered = sorted(model["vocab"].items(), key=lambda item: item[1])
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    return {
        VOCABULARY: json.dumps(dict(ordered), ensure_ascii=False) + "\n",
        MERGES: "".join(f"{line}\n" for line in ["#version: 0.2", *merges]),
    }
