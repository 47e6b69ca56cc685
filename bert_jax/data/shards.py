"""The work of one core: a chunk of documents into a shard of records."""

import contextlib
import errno
import os
import random
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from array_record.python import array_record_module
from jaxtyping import Int64
from tokenizers import Tokenizer

from bert_jax.data import corpus, pairs, records

# Sentences that are tokenized in one call; bounds the memory of its result.
_BATCH = 1024


class Chunk(NamedTuple):
    """Documents that make one shard: the `number`-th of a split."""

    split: str
    number: int
    documents: list[corpus.Document]


class Job(NamedTuple):
    """What the chunks of a corpus share."""

    folder: Path
    tokenizer: Tokenizer
    language: str
    seed: int
    settings: pairs.Settings


class Shard(NamedTuple):
    """What was written of a chunk."""

    split: str
    number: int
    totals: Counter[str]  # documents, sentences, tokens, pairs, bytes (of text)


def part_path(folder: Path, split: str, number: int) -> Path:
    """Where a shard lies while the number of shards is not known."""
    return folder / f"{split}-{number}"


def write_shard(job: Job, chunk: Chunk) -> tuple[Shard, Int64[np.ndarray, " vocab"]]:
    """Writes a chunk's pairs to one ArrayRecord file, at `part_path`.

    Returns:
      a report, and how often each id stands in the tokens_a and tokens_b written.

    Raises:
      OSError: the disk is full.
    """
    # "[MASK]" and the like in a text are text, as in create_pretraining_data.py.
    job.tokenizer.encode_special_tokens = True
    totals = Counter(bytes=sum(len(d.text.encode()) for d in chunk.documents))
    tokens, lengths = [], []
    for document in chunk.documents:
        ids, sizes = _encode(job, document)
        if sizes:  # none where the tokenizer drops all of its characters
            tokens.append(ids)
            lengths.append(sizes)
            totals.update(documents=1, sentences=len(sizes), tokens=len(ids))
    rng = random.Random(f"{job.seed} {chunk.split} {chunk.number} pairs")
    used = array("i")
    # Uncompressed: ids hardly shrink, and a record costs 1 us instead of 6.
    writer = array_record_module.ArrayRecordWriter(
        str(part_path(job.folder, chunk.split, chunk.number)),
        "group_size:1,uncompressed",
    )
    with _disk_full():
        for a, b, is_random_next in pairs.draw(lengths, rng, job.settings):
            tokens_a = tokens[a.document][a.start : a.stop]
            tokens_b = tokens[b.document][b.start : b.stop]
            writer.write(records.serialize(tokens_a, tokens_b, is_random_next))
            used += tokens_a
            used += tokens_b
            totals["pairs"] += 1
        writer.close()
    counts = np.bincount(used, minlength=job.tokenizer.get_vocab_size())
    return Shard(chunk.split, chunk.number, totals), counts


def _encode(job: Job, document: corpus.Document) -> tuple[array, list[int]]:
    """Token ids of a document and the number of them in each sentence."""
    ids, lengths = array("i"), []
    sentences = corpus.sentences(document, job.language)
    for first in range(0, len(sentences), _BATCH):
        for encoding in job.tokenizer.encode_batch_fast(
            sentences[first : first + _BATCH], add_special_tokens=False
        ):
            if sentence := encoding.ids:
                ids.extend(sentence)
                lengths.append(len(sentence))
    return ids, lengths


@contextlib.contextmanager
def _disk_full() -> Iterator[None]:
    """ArrayRecord's writer reports a full disk as a RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        if "No space left" not in str(error):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
