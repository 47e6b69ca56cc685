"""Splits documents into train and dev, and groups them into one core's work."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from bert_jax.data import corpus, segments, vocabulary
from bert_jax.data.corpus import Document
from bert_jax.data.shards import Chunk
from bert_jax.errors import UserError
from bert_jax.runtime import storage

# Bytes of text in a chunk, and so in a shard (some 6 MB of records at length 128). A
# constant, so that the number of cores changes nothing. Large enough that a chunk,
# which a random B comes from, holds many documents (2,500 articles or 20 books), and
# that shards stay few (English Wikipedia: 2,500); but each core holds one in memory.
CHUNK_BYTES = 8 << 20
SPLITS = ("train", "dev")


def documents(config: ConfigDict) -> Iterator[list[Document]]:
    """Yields each document of `config.corpus.sources`, in parts of limited size.

    Raises:
      UserError: see `corpus.documents`.
    """
    settings = config.corpus
    texts = corpus.documents(tuple(settings.sources), storage.path(settings.data_dir))
    return segments.read(texts, settings.max_document_bytes, settings.language)


def identity(config: ConfigDict) -> dict[str, Any]:
    """The settings that shape the documents and their splits, besides the text."""
    names = ("dev_fraction", "max_document_bytes", "language", "seed")
    return {name: config.corpus[name] for name in names}


def fits(report: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether a prepared folder's report has these settings, `identity` among them."""
    return all(report.get(name) == value for name, value in settings.items())


def split_rule(config: ConfigDict) -> Callable[[int], str]:
    """Returns a function from a document's index to its split.

    A document is held back when a hash of its index falls below dev_fraction. So that
    a few books are enough, the first hundred documents are special: the two with the
    lowest hashes are always held back and the two with the highest never; one each
    where the corpus has two or three documents.
    """
    fraction = config.corpus.dev_fraction
    count = sum(1 for _ in itertools.islice(documents(config), 100))
    if count < 2:
        raise UserError(
            "corpus.sources: one document cannot be trained on and held back at once: "
            "give two (sentences: an empty line ends a document; text: a file is one), "
            "or set corpus.max_document_bytes below its length, so that it is cut"
        )

    def place(index: int) -> float:
        return vocabulary.keyed_hash(config.corpus.seed, "dev", index)

    order = sorted(range(count), key=place)
    least = 2 if count >= 4 else 1
    settled = dict.fromkeys(order[:least], "dev") | dict.fromkeys(
        order[-least:], "train"
    )
    return lambda index: settled.get(
        index, "dev" if place(index) < fraction else "train"
    )


def chunks(
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
