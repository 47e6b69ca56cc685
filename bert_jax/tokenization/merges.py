"""Reads and writes a byte-pair vocabulary: vocab.json, and merges.txt beside it."""

import json
from collections.abc import Mapping

from tokenizers import Tokenizer

from bert_jax.errors import UserError, first_line
from bert_jax.runtime import untrusted
from bert_jax.runtime.storage import Path

VOCABULARY, MERGES = "vocab.json", "merges.txt"
Pair = tuple[str, str]


def pieces(path: Path, content: str) -> dict[str, int]:
    """Each piece's id.

    Args:
      path: of the vocab.json, for errors.
      content: of the vocab.json.

    Raises:
      UserError: it is damaged.
    """
    ids = untrusted.parse(content, str(path))
    if not isinstance(ids, dict) or not all(
        type(index) is int and 0 <= index < 2**32 for index in ids.values()
    ):
        raise UserError(
            f"{path}: not a byte-pair vocabulary; each piece must have its id, as in "
            f"the {VOCABULARY} that Hugging Face's tokenizers save"
        )
    return ids


def pairs(path: Path, known: Mapping[str, int]) -> list[Pair]:
    """The merges of the merges.txt beside a vocab.json, the first ones first.

    Args:
      path: of the vocab.json.
      known: its `pieces`.

    Raises:
      UserError: the file is missing or damaged, or is of another vocabulary.
    """
    beside = path.parent / MERGES
    try:
        lines = beside.read_bytes().decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{beside}: cannot be read ({first_line(error)}); a {VOCABULARY} needs it "
            "beside it"
        ) from error
    merges = []
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        first, _, second = line.partition(" ")
        if (
            not first
            or not second
            or not {first, second, first + second} <= known.keys()
        ):
            raise UserError(
                f"{beside}:{number}: {line!r:.60} is not two pieces of {path.name} and "
                "a space between them; the two files must be of one vocabulary"
            )
        merges.append((first, second))
    return merges


def contents(tokenizer: Tokenizer) -> dict[str, str]:
    """Both files' contents, by name."""
    model = json.loads(tokenizer.to_str())["model"]
    ordered = sorted(model["vocab"].items(), key=lambda item: item[1])
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    return {
        VOCABULARY: json.dumps(dict(ordered), ensure_ascii=False) + "\n",
        MERGES: "".join(f"{line}\n" for line in ["#version: 0.2", *merges]),
    }
