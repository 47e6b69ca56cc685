"""Chunks of documents: long ones cut, split into train and dev, grouped for a core."""

import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from bert_jax.data import corpus
from bert_jax.data.corpus import Document
from bert_jax.errors import UserError
from bert_jax.runtime import storage

# Bytes of text in a chunk. A constant, so that the number of cores changes nothing.
# Large enough that a chunk, which a random B comes from, holds many documents (2,500
# articles or 20 books). But each core holds one in memory.
CHUNK_BYTES = 8 << 20
SPLITS = ("train", "dev")
FORMAT = 3  # raise it when the same settings would give different rows


class Chunk(NamedTuple):
    """Documents that a core takes at a time: number `number` of a split."""

    split: str  # train or dev
    number: int  # within the split
    documents: list[list[corpus.Document]]  # each as its segments


def cut_documents(settings: ConfigDict) -> Iterator[list[Document]]:
    """Yields each document of the sources, as its segments (see `cut_document`).

    A single document is divided: its segments count as documents, so that some can be
    held out and a random second sentence comes from another segment.

    Args:
      settings: `config.corpus`, as in the functions below.

    Raises:
      UserError: see `corpus.read_documents`.
    """
    texts = corpus.read_documents(
        tuple(settings.sources), storage.storage_path(settings.data_dir)
    )
    first = list(itertools.islice(texts, 2))
    is_single = len(first) == 1
    rest = itertools.chain(first, texts)
    del first  # frees each as the chain passes it
    for document in rest:
        pieces = cut_document(document, settings.max_document_bytes, settings.language)
        yield from ([piece] for piece in pieces) if is_single else [pieces]


def chunk_settings(settings: ConfigDict) -> dict[str, Any]:
    """Returns the settings that determine documents and splits, besides the text."""
    names = ("dev_fraction", "max_document_bytes", "language", "seed")
    return {name: settings[name] for name in names}


def keyed_hash(seed: int, purpose: str, index: int) -> float:
    """Returns a number in [0, 1) that depends only on the arguments."""
    digest = hashlib.blake2b(f"{seed} {purpose} {index}".encode(), digest_size=8)
    return int.from_bytes(digest.digest()) / 2**64


def split_rule(settings: ConfigDict) -> Callable[[int], str]:
    """Returns a function from a document's index to its split.

    A document is held out when a hash of its index falls below dev_fraction. So that
    a few books are enough, the first hundred documents are special: the two with the
    lowest hashes are always held out and the two with the highest never. Where the
    corpus has two or three documents, it is one each. With a dev_fraction of 1, as a
    text to evaluate has it, all documents are held out.
    """
    fraction = settings.dev_fraction
    if fraction == 1:
        return lambda index: "dev"
    count = sum(1 for _ in itertools.islice(cut_documents(settings), 100))
    if count < 2:
        raise UserError(
            "corpus.sources: one document cannot be trained on and held back at once: "
            "give two (sentences: an empty line ends a document; text: a file is one), "
            "or set corpus.max_document_bytes below its length, so that it is cut"
        )

    def place(index: int) -> float:
        return keyed_hash(settings.seed, "dev", index)

    order = sorted(range(count), key=place)
    least = 2 if count >= 4 else 1
    settled = dict.fromkeys(order[:least], "dev") | dict.fromkeys(
        order[-least:], "train"
    )
    return lambda index: settled.get(
        index, "dev" if place(index) < fraction else "train"
    )


def group_chunks(
    documents: Iterable[list[Document]], split_of: Callable[[int], str]
) -> Iterator[Chunk]:
    """Groups each split's documents into chunks of CHUNK_BYTES, in their order.

    A chunk has at least two documents. Leftovers of less than half a chunk join the
    last chunk.
    """
    filling: dict[str, list[list[Document]]] = {split: [] for split in SPLITS}
    full: dict[str, list[list[Document]]] = {}  # not yielded: leftovers may join it
    size: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for index, document in enumerate(documents):
        split = split_of(index)
        filling[split].append(document)
        size[split] += sum(len(piece.text.encode()) for piece in document)
        if size[split] >= CHUNK_BYTES and len(filling[split]) >= 2:
            if split in full:
                yield Chunk(split, number[split], full[split])
                number[split] += 1
            full[split], filling[split], size[split] = filling[split], [], 0
    for split in SPLITS:
        rest = filling[split]
        if split in full:
            if size[split] < CHUNK_BYTES / 2 or len(rest) < 2:
                full[split] += rest
                rest = []
            yield Chunk(split, number[split], full.pop(split))
            number[split] += 1
        if rest:
            yield Chunk(split, number[split], rest)


def cut_document(document: Document, max_bytes: int, language: str) -> list[Document]:
    """Cuts at ends of paragraphs, and of sentences where a paragraph is too long.

    `pairs.draw_pairs` draws once per document whether its rows are short, as Google's
    code does for each of ten copies of the corpus. In an uncut book all rows would be
    short, or none.

    Args:
      document: Any document.
      max_bytes: Maximum bytes of a segment, in UTF-8, unless one sentence has more. 0
        means no cuts.
      language: Language by whose rules sentences are split.

    Returns:
      Segments of similar lengths that together have all the text.
    """
    text, size = document.text, len(document.text.encode())
    if not max_bytes or size <= max_bytes:
        return [document]
    if document.form == "wrapped":
        separator, paragraphs = "\n\n", re.split(r"\n[ \t]*\n", text)
    else:
        separator, paragraphs = "\n", text.split("\n")
    if document.form != "sentences":  # there each line is one sentence already
        whole, paragraphs = paragraphs, []
        for paragraph in whole:
            length = len(paragraph.encode())
            if length <= max_bytes:
                paragraphs.append(paragraph)
                continue
            part = document._replace(text=paragraph)
            sentences = corpus.split_sentences(part, language)
            groups = _group_parts(sentences, 1, max_bytes, length)
            paragraphs += map(" ".join, groups)
    groups = _group_parts(paragraphs, len(separator), max_bytes, size)
    return [document._replace(text=separator.join(group)) for group in groups]


def _group_parts(
    parts: Iterable[str], gap: int, max_bytes: int, total: int
) -> Iterator[list[str]]:
    """Groups consecutive parts, with about the same number of bytes in each group.

    Args:
      gap: Bytes between two parts.
      max_bytes: Maximum bytes of a group, unless one part has more.
      total: Bytes of all parts.
    """
    # A tenth of slack: a group's last part may overshoot.
    goal = total / math.ceil(total / (0.9 * max_bytes))
    group: list[str] = []
    size = seen = number = 0
    for part in parts:
        part_size = len(part.encode()) + gap
        if group and (size + part_size > max_bytes or seen >= goal * (number + 1)):
            yield group
            number += 1
            group, size = [], 0
        group.append(part)
        size += part_size
        seen += part_size
    yield group
