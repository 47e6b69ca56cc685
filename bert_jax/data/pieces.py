"""Long documents in pieces: a whole book is no unit for what is drawn of each document.

Whether a document's rows are short is drawn once for it (pairs.py, as Google does with
ten copies of the corpus); of a book as one document all rows would be short, or none.
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

    One document alone is divided: its pieces stand for documents, so that some can be
    held back and a random second sentence comes from another one.

    Args:
      max_bytes: of a piece, in UTF-8; 0: nothing is cut.
      language: whose rules split sentences.
    """
    first = list(itertools.islice(documents, 2))
    if len(first) == 1:
        yield from ([piece] for piece in cut(first[0], max_bytes, language))
        return
    rest = itertools.chain(first, documents)
    del first  # the chain lets go of them
    for document in rest:
        yield cut(document, max_bytes, language)


def cut(document: Document, max_bytes: int, language: str) -> list[Document]:
    """Cuts at ends of paragraphs, and of sentences where a paragraph is too long.

    The pieces have some `max_bytes` at most (more where a sentence has) and are about
    as long as each other; together they hold all that the document does.
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
    if document.form != "sentences":  # of which a line is one already
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
    """A paragraph, or some of its sentences at a time."""
    size = len(paragraph.encode())
    if size <= max_bytes:
        return [paragraph]
    sentences = corpus.sentences(Document(paragraph, form), language)
    groups = _grouped(sentences, 1, max_bytes, size)
    return map(" ".join, groups)


def _grouped(
    parts: Iterable[str], gap: int, most: int, total: int
) -> Iterator[list[str]]:
    """Parts that follow each other, about the same number of bytes each time.

    Args:
      gap: bytes between two of them.
      most: bytes of a group, unless one part has more.
      total: bytes of all.
    """
    # A tenth is left for the last part to go beyond it.
    goal = total / math.ceil(total / (0.9 * most))
    group: list[str] = []
    size = seen = number = 0
    for part in parts:
        own = len(part.encode()) + gap
        if group and (size + own > most or seen >= goal * (number + 1)):
            yield group
            number += 1
            group, size = [], 0
        group.append(part)
        size += own
        seen += own
    yield group
