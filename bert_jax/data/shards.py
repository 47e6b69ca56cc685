"""The work of one core: from a chunk of documents to a shard of records."""

import random
import secrets
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from array_record.python import array_record_module
from jaxtyping import Int64, UInt64

from bert_jax.data import corpus, overlap, pairs, records
from bert_jax.data.chunks import Chunk
from bert_jax.data.records import source_key
from bert_jax.data.words import Words
from bert_jax.errors import UserError

# Sentences to tokenize in one call, which bounds the memory of the result.
_BATCH = 1024


class Job(NamedTuple):
    """The settings that the chunks of a corpus share."""

    folder: Path
    words: Words
    vocabulary: int  # tokens
    language: str
    seed: int
    settings: pairs.Settings
    # For dev, after all of train is written: keys of the sentences to leave out.
    known: frozenset[int] = frozenset()
    by_source: bool = False  # also count each source's documents and pairs
    separator: int | None = None  # the id between documents that share rows

    def aside(self) -> Path:
        """Returns the folder of temporary files, deleted at the end."""
        return self.folder / "aside"


class Shard(NamedTuple):
    """A report of the records written for a chunk."""

    split: str
    number: int
    # documents, pieces (segments), sentences, left_out (sentences), tokens, pairs,
    # bytes (of text), those of `source_key`, and where there are any random (pairs with
    # a random second part)
    totals: Counter[str]
    counts: Int64[np.ndarray, " vocab"]  # count of each id in tokens_a and tokens_b
    keys: UInt64[np.ndarray, " sentences"]  # see overlap.keys


def part_path(folder: Path, split: str, number: int) -> Path:
    """Returns the path of a shard until the number of shards is known."""
    return folder / f"{split}-{number}"


def first_pass(job: Job, chunk: Chunk) -> Shard:
    """Writes a chunk of train. For dev, which is written later, returns only keys."""
    if chunk.split == "train":
        return write_shard(job, chunk)
    pieces = (piece for document in chunk.documents for piece in document)
    keys = [overlap.keys(corpus.sentences(piece, job.language)) for piece in pieces]
    none = np.zeros(0, np.int64)
    return Shard(chunk.split, chunk.number, Counter(), none, np.concatenate(keys))


def write_shard(job: Job, chunk: Chunk) -> Shard:
    """Writes a chunk's pairs to one ArrayRecord file, at `part_path`.

    Raises:
      OSError: the disk is full.
    """
    totals: Counter[str] = Counter()
    tokens, lengths, wholes, keys = [], [], [], []
    for number, ids, sizes, piece_keys in _tokenized(job, chunk, totals):
        tokens.append(ids)
        lengths.append(sizes)
        wholes.append(number)
        keys.append(piece_keys)
    totals["documents"] = len(set(wholes))
    source_of = [document[0].source for document in chunk.documents]
    if job.by_source:
        totals.update(source_key(source_of[n], "documents") for n in set(wholes))
    rng = random.Random(f"{job.seed} {chunk.split} {chunk.number} pairs")
    drawn: Iterable[pairs.Pair] = pairs.draw(lengths, rng, job.settings, wholes)
    if job.separator is not None:
        longest = job.settings.max_seq_length - 2  # without a row's first and last
        ids, drawn = pairs.full_sentences(
            tokens, lengths, wholes, longest, job.separator
        )
        tokens = [ids]
    encoded = [records.varints(np.frombuffer(ids, np.int32)) for ids in tokens]
    used = array("i")
    # Uncompressed: ids hardly shrink, and a record costs 1 us instead of 6.
    # Renamed when complete: Beam may have two workers write the same shard.
    new = job.aside() / f"{chunk.split}-{chunk.number}.{secrets.token_hex(4)}"
    options = "group_size:1,uncompressed"
    writer = array_record_module.ArrayRecordWriter(str(new), options)
    try:
        for a, b, is_random_next in drawn:
            tokens_a = encoded[a.document].part(a.start, a.stop)
            tokens_b = encoded[b.document].part(b.start, b.stop)
            writer.write(records.serialize(tokens_a, tokens_b, is_random_next))
            for part in (a, b):
                used += tokens[part.document][part.start : part.stop]
            totals["pairs"] += 1
            if is_random_next:
                totals["random"] += 1
            if job.by_source:
                totals[source_key(source_of[wholes[a.document]], "pairs")] += 1
        writer.close()
    except RuntimeError as error:  # ArrayRecord's, for a full disk
        raise UserError(
            f"config.corpus.data_dir: cannot write the prepared data ({error}); make "
            "room there, or name another folder"
        ) from error
    new.rename(part_path(job.folder, chunk.split, chunk.number))
    counts = np.bincount(used, minlength=job.vocabulary)
    every = np.concatenate([np.zeros(0, np.uint64), *keys])
    return Shard(chunk.split, chunk.number, totals, counts, every)


def _tokenized(job: Job, chunk: Chunk, totals: Counter[str]) -> Iterator[tuple]:
    """Yields each segment's document, tokens, sentence lengths and sentence keys."""
    for number, document in enumerate(chunk.documents):
        for piece in document:
            totals["bytes"] += len(piece.text.encode())
            sentences = corpus.sentences(piece, job.language)
            keys = overlap.keys(sentences)
            if job.known:
                kept = [i for i, k in enumerate(keys.tolist()) if k not in job.known]
                totals["left_out"] += len(sentences) - len(kept)
                sentences, keys = [sentences[i] for i in kept], keys[kept]
            ids, sizes = _encode(job, sentences)
            if sizes:  # empty if the tokenizer drops every character
                totals.update(pieces=1, sentences=len(sizes), tokens=len(ids))
                yield number, ids, sizes, keys


def _encode(job: Job, sentences: list[str]) -> tuple[array, list[int]]:
    """Returns a segment's token ids, and the number of tokens in each sentence."""
    ids, lengths = array("i"), []
    if space := job.words.before_word:
        sentences = [*sentences[:1], *(f"{space}{other}" for other in sentences[1:])]
    for first in range(0, len(sentences), _BATCH):
        for sentence in job.words.encode(sentences[first : first + _BATCH]):
            if sentence:
                ids.frombytes(sentence)
                lengths.append(len(sentence) // ids.itemsize)
    return ids, lengths
