"""Reads and writes a byte-pair vocabulary: vocab.json, and merges.txt beside it."""

import json
from collections.abc import Mapping

from tokenizers import Tokenizer

from bert_jax.errors import UserError
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
    merges = _merges(path.parent / MERGES)
    for number, pair in merges:
        for piece in ("".join(pair), *pair):
            if piece not in known:
                raise UserError(
                    f"{path.parent / MERGES}:{number}: {piece!r:.60} is not in "
                    f"{path.name}; the two files must be of one vocabulary"
                )
    return [pair for _, pair in merges]


def contents(tokenizer: Tokenizer) -> dict[str, str]:
    """Both files' contents, by name."""
    model = json.loads(tokenizer.to_str())["model"]
    ordered = sorted(model["vocab"].items(), key=lambda item: item[1])
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    return {
        VOCABULARY: json.dumps(dict(ordered), ensure_ascii=False) + "\n",
        MERGES: "".join(f"{line}\n" for line in ["#version: 0.2", *merges]),
    }


def _merges(path: Path) -> list[tuple[int, Pair]]:
    """The merges, each with its line."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UserError(
            f"{path}: cannot be read ({why}); a {VOCABULARY} needs it beside it"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: byte {error.start} is not UTF-8") from error
    merges = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        parts = line.split(" ")
        if len(parts) != 2 or not all(parts):
            raise UserError(
                f"{path}:{number}: {line!r:.60} is not two pieces and a space between "
                "them"
            )
        merges.append((number, (parts[0], parts[1])))
    return merges
