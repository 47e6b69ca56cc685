"""Cuts long documents into pieces.

pairs.py draws once per document whether its rows are short, as Google's code does for
each of ten copies of the corpus. In an uncut book all rows would be short, or none.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator

from bert_jax.data import corpus
from bert_jax.data.corpus import Document


def read(
    documents: Iterator[Document], max_bytes: int, language: str
) -> Iterator[list[Document]]:
    """Yields each document as its pieces.

    A single document is divided: its pieces count as documents, so that some can be
    held back and a random second sentence comes from another piece.

    Args:
      max_bytes: of a piece, in UTF-8; 0: nothing is cut.
      language: splits sentences by its rules.
    """
    first = list(itertools.islice(documents, 2))
    if len(first) == 1:
        yield from ([piece] for piece in cut(first[0], max_bytes, language))
        return
    rest = itertools.chain(first, documents)
    del first  # frees each as the chain passes it
    for document in rest:
        yield cut(document, max_bytes, language)


def cut(document: Document, max_bytes: int, language: str) -> list[Document]:
    """Cuts at ends of paragraphs, and of sentences where a paragraph is too long.

    Pieces have at most about `max_bytes` (more where one sentence has) and similar
    lengths; together they have all the text.
    """
    text = document.text
    # A character has at most four bytes.
    if not max_bytes or len(text) * 4 <= max_bytes:
        return [document]
    size = len(text.encode())
    if size <= max_bytes:
        return [document]
    if document.form == "wrapped":
        separator, paragraphs = "\n\n", re.split(r"\n[ \t]*\n", text)
    else:
        separator, paragraphs = "\n", text.split("\n")
    if document.form != "sentences":  # there each line is one sentence already
        paragraphs = [
            part
            for paragraph in paragraphs
            for part in _shortened(paragraph, document.form, max_bytes, language)
        ]
    groups = _grouped(paragraphs, len(separator), max_bytes, size)
    return [document._replace(text=separator.join(group)) for group in groups]


def _shortened(
    paragraph: str, form: str, max_bytes: int, language: str
) -> Iterable[str]:
    """A paragraph, or groups of its sentences."""
    size = len(paragraph.encode())
    if size <= max_bytes:
        return [paragraph]
    sentences = corpus.sentences(Document(paragraph, form), language)
    groups = _grouped(sentences, 1, max_bytes, size)
    return map(" ".join, groups)


def _grouped(
    parts: Iterable[str], gap: int, most: int, total: int
) -> Iterator[list[str]]:
    """Groups consecutive parts, with about the same number of bytes in each group.

    Args:
      gap: bytes between two parts.
      most: bytes of a group, unless one part has more.
      total: bytes of all parts.
    """
    # A tenth of slack: a group's last part may overshoot.
    goal = total / math.ceil(total / (0.9 * most))
    group: list[str] = []
    size = seen = number = 0
    for part in parts:
        part_size = len(part.encode()) + gap
        if group and (size + part_size > most or seen >= goal * (number + 1)):
            yield group
            number += 1
            group, size = [], 0
        group.append(part)
        size += part_size
        seen += part_size
    yield group
