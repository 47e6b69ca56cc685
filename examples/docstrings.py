"""Writes labelled texts that every machine has: documentation, by package.

    python examples/docstrings.py docstrings.jsonl --each=300

Takes `--each` paragraphs of 6 to 40 words from the docstrings of each of some packages
that this project needs, and of the standard library. A hash of the text selects them.
Lines have `text` and `label`, the package.
"""

import argparse
import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bert_jax.data.sources import pydocs

PACKAGES = (
    *("asyncio", "email", "huggingface_hub", "jax", "numpy", "orbax", "scipy"),
    "tensorflow_datasets",
)
WORDS = (6, 40)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="a .jsonl file")
    parser.add_argument("--each", default=300, type=int, help="paragraphs a package")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        rows = paragraphs(pydocs.extract_docstrings(Path(folder)), options.each)
    options.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{len(rows)} paragraphs of {len(PACKAGES)} packages: {options.output}")


def paragraphs(path: Path, each: int) -> list[dict[str, str]]:
    """Returns `each` paragraphs of each package, as rows with `text` and `label`.

    Args:
      path: Path of the file that `pydocs.extract_docstrings` has written.

    Raises:
      SystemExit: A package has fewer. It may not be installed.
    """
    found: dict[str, set[str]] = {package: set() for package in PACKAGES}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        package = record["module"].partition("/")[0]
        if package in found:
            texts = (" ".join(text.split()) for text in record["text"].split("\n\n"))
            found[package] |= {text for text in texts if _is_prose(text)}
    rows = []
    for package, own_texts in found.items():
        # Copied from one package into another: its owner is unknown.
        others = set().union(*(found[name] for name in PACKAGES if name != package))
        own = sorted(own_texts - others, key=_hash)
        if len(own) < each:
            raise SystemExit(
                f"{package} has {len(own)} paragraphs of {WORDS[0]} to {WORDS[1]} "
                f"words; install it, or lower --each={each}"
            )
        rows += [{"text": text, "label": package} for text in own[:each]]
    return sorted(rows, key=lambda row: _hash(row["text"]))


def _is_prose(text: str) -> bool:
    """Whether it is a sentence or several, not a list of names or code."""
    words = text.split()
    letters = sum(word.strip(".,;:'\"()").isalpha() for word in words)
    return WORDS[0] <= len(words) <= WORDS[1] and letters > 0.8 * len(words)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


if __name__ == "__main__":
    main()
