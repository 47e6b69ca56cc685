"""Which documents are held back, and which make one core's work."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from ml_collections import ConfigDict

from bert_jax.data import corpus, pieces, vocabulary
from bert_jax.data.corpus import Document
from bert_jax.data.shards import Chunk
from bert_jax.errors import UserError
from bert_jax.runtime import storage

# Bytes of text to a chunk, hence to a shard (some 6 MB of records at length 128): a
# constant, so that the number of cores changes nothing. A random B comes from its A's
# own chunk, which has to hold many documents therefore (here 2,500 articles or 20
# books), and a corpus should not fall into crumbs (English Wikipedia: 2,500 shards);
# but each core holds a chunk in memory.
CHUNK_BYTES = 8 << 20
SPLITS = ("train", "dev")


def documents(config: ConfigDict) -> Iterator[list[Document]]:
    """Each document of `config.corpus.sources`, as its pieces.

    Raises:
      UserError: see `corpus.documents`.
    """
    wanted = config.corpus
    found = corpus.documents(tuple(wanted.sources), storage.path(wanted.data_dir))
    return pieces.read(found, wanted.max_document_bytes, wanted.language)


def split_rule(config: ConfigDict) -> Callable[[int], str]:
    """Returns the split of a document, by its index.

    A document is held back when a hash of its index falls below dev_fraction. So that
    a few books will do, the first hundred documents (or as many as there are) are
    counted, and of these those with the two lowest hashes are always held back, those
    with the two highest never; one each where there are two or three documents.
    """
    fraction = config.corpus.dev_fraction
    if not 0 < fraction < 1:
        raise UserError(f"corpus.dev_fraction={fraction}: must be between 0 and 1")
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
    found: Iterable[list[Document]], split_of: Callable[[int], str]
) -> Iterator[Chunk]:
    """Groups each split's documents into chunks of CHUNK_BYTES, in their order.

    A chunk has two documents at least, and what is left over at the end joins the
    chunk before when it is less than half of one.
    """
    filling: dict[str, list[list[Document]]] = {split: [] for split in SPLITS}
    full: dict[str, list[list[Document]]] = {}  # to which the rest may be added
    size: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for index, document in enumerate(found):
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
