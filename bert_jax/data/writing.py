"""Writing of a corpus's sentence pairs: train, then dev without train's sentences.

Each core turns chunks of documents into tables, which this process adds to a split's.
"""

import contextlib
import functools
import importlib.util
import json
import pickle
import random
import shutil
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import UInt64
from ml_collections import ConfigDict
from tokenizers import Tokenizer
from tqdm import tqdm

from bert_jax import tokenization
from bert_jax.data import chunks, corpus, overlap, pairs, workers
from bert_jax.data.chunks import Chunk
from bert_jax.data.table import Column, Table, write_table
from bert_jax.data.words import Words
from bert_jax.errors import UserError


class Job(NamedTuple):
    """The settings that the chunks of a corpus share."""

    aside: Path  # a folder of temporary files, deleted at the end
    words: Words  # tokenizes sentences
    dtype: np.dtype  # of token ids
    corpus: ConfigDict  # config.corpus
    settings: pairs.Settings  # determine the pairs
    separator: int  # the id between documents that share rows
    # Keys of dev's sentences that train has too. None until all of train is written.
    known: frozenset[int] | None = None


class Part(NamedTuple):
    """The rows of a chunk."""

    split: str  # train or dev
    # tokens (A then B of each pair, without special tokens), size_a (tokens of A),
    # is_random_next, and source (of A's document, its index in `corpus.sources`, in
    # order. With `corpus.full_sentences` it is that of the chunk's first document)
    table: Table
    # documents, pieces (segments), sentences, left_out (sentences), tokens, pairs,
    # bytes (of text), and where there are any random (pairs with a random second part)
    totals: Counter[str]
    keys: UInt64[np.ndarray, " sentences"]  # see overlap.keys


# `workers.ordered_map`, or the same on Apache Beam.
OrderedMap: TypeAlias = Callable[
    [Callable[[Job, Chunk], Part], Job, Iterable[Chunk]],
    Generator[Part, None, None],
]


def runner_map(settings: ConfigDict) -> OrderedMap:
    """Returns `corpus.runner`'s map, or that of this machine's cores without one.

    Args:
      settings: `config.corpus`.

    Raises:
      UserError: Apache Beam is not installed.
    """
    if not settings.runner:
        return workers.ordered_map
    if importlib.util.find_spec("apache_beam") is None:
        raise UserError(
            f"config.corpus.runner={settings.runner}: Apache Beam is not installed; "
            "pip install '.[beam]'"
        )
    from bert_jax.data import beam  # slow

    return functools.partial(beam.ordered_map, settings)


def write_dataset(
    settings: ConfigDict,
    tokenizer: Tokenizer,
    shape: pairs.Settings,
    identity: dict[str, Any],
    folder: Path,
) -> None:
    """Writes both splits, the counts of ids and the report into a new folder.

    Args:
      settings: `config.corpus`.

    Raises:
      UserError: see `chunks.split_rule`, or train has all the held-out sentences too.
    """
    start = time.monotonic()
    vocabulary = tokenizer.get_vocab_size()
    job = Job(
        folder.absolute() / "aside",
        Words(tokenizer),
        np.min_scalar_type(vocabulary - 1),
        settings,
        shape,
        tokenization.special_ids(tokenizer).sep,
    )
    job.aside.mkdir()
    ordered_map = runner_map(settings)
    counts, held_back = np.zeros(vocabulary, np.int64), []
    train, dev = Counter[str](), Counter[str]()
    every = chunks.group_chunks(
        chunks.cut_documents(settings), chunks.split_rule(settings)
    )
    with (
        tqdm(desc="preparing", unit="B", unit_scale=True, disable=None) as progress,
        (job.aside / "keys").open("wb") as keys,
        (job.aside / "dev").open("w+b") as later,
    ):
        first = ordered_map(make_part, job, _set_aside(every, later))
        with _write_parts(folder / "train", first, progress) as parts:
            for part in parts:
                if part.split == "dev":
                    held_back.append(part.keys)
                    continue
                train += part.totals
                keys.write(part.keys.tobytes())
                ids = part.table["tokens"].values
                counts += np.bincount(ids, minlength=vocabulary)
        keys.flush()
        known = overlap.find_known_keys(job.aside / "keys", np.concatenate(held_back))
        later.seek(0)
        dev_chunks = (pickle.load(later) for _ in held_back)
        job = job._replace(known=frozenset(known.tolist()))
        second = ordered_map(make_part, job, dev_chunks)
        with _write_parts(folder / "dev", second, progress) as parts:
            for part in parts:
                dev += part.totals
    shutil.rmtree(job.aside)
    dev.update(left_out=0)  # adding counters drops zeros
    if not dev["pairs"] and not train["pairs"]:
        raise UserError(f"{settings.sources[0]}: has no text for a row")
    if not dev["pairs"]:
        raise UserError(
            "corpus.sources: the training documents have every held-out sentence too, "
            "so the text repeats itself; remove the copies, or raise "
            "corpus.dev_fraction"
        )
    np.save(folder / "token_counts.npy", counts)
    with open(folder / "preparation.json", "w", encoding="utf-8") as file:
        totals = {"train": train, "dev": dev}
        json.dump(identity | {"totals": totals}, file, indent=1)
    total, seconds = train + dev, time.monotonic() - start
    print(
        f"prepared {total['documents']:,} documents, {total['sentences']:,} sentences, "
        f"{total['tokens']:,} tokens: {total['pairs']:,} pairs in {seconds:.1f} s, "
        f"{total['bytes'] / 1e6 / seconds:.2f} MB of text/s",
        file=sys.stderr,
    )


@contextlib.contextmanager
def _write_parts(
    folder: Path, results: Generator[Part, None, None], progress: tqdm
) -> Iterator[Iterator[Part]]:
    """Yields an iterator over the parts, which writes the table of each. The processes
    that make them end with the context."""

    def add_parts(add: Callable[[Table], None]) -> Iterator[Part]:
        for part in results:
            add(part.table)
            progress.update(part.totals["bytes"])
            yield part

    with write_table(folder) as add, contextlib.closing(results):
        yield add_parts(add)


def _set_aside(every: Iterable[Chunk], later: BinaryIO) -> Iterator[Chunk]:
    """Yields all chunks, and stores those of dev."""
    for chunk in every:
        if chunk.split == "dev":
            pickle.dump(chunk, later)
        yield chunk


def make_part(job: Job, chunk: Chunk) -> Part:
    """Draws the pairs of a chunk. Of dev's it returns only the keys, until all of
    train's are known."""
    totals: Counter[str] = Counter()
    if chunk.split == "dev" and job.known is None:
        keys = overlap.sentence_keys(
            sentence
            for document in chunk.documents
            for piece in document
            for sentence in corpus.split_sentences(piece, job.corpus.language)
        )
        return Part(chunk.split, Table(), totals, keys)
    tokens, lengths, wholes, keys = _tokenize(job, chunk, totals)
    totals["documents"] = len(set(wholes))
    rng = random.Random(f"{job.corpus.seed} {chunk.split} {chunk.number} pairs")
    drawn: Iterable[pairs.Pair] = pairs.draw_pairs(lengths, rng, job.settings, wholes)
    if job.corpus.full_sentences:
        longest = job.settings.max_seq_length - 2  # without a row's first and last
        ids, drawn = pairs.full_sentences(
            tokens, lengths, wholes, longest, job.separator
        )
        tokens = [ids]
    used, rows = array("i"), []
    for a, b, is_random_next in drawn:
        for span in (a, b):
            used += tokens[span.document][span.start : span.stop]
        (first, *_) = chunk.documents[wholes[a.document]]
        rows.append((len(used), a.stop - a.start, is_random_next, first.source))
    ends, size_a, is_random, source = np.array(rows, np.int64).reshape(-1, 4).T
    totals.update(pairs=len(rows), random=int(is_random.sum()))
    table = Table(
        tokens=Column(np.array(used, job.dtype), ends),
        size_a=Column(size_a.astype(np.int32)),
        is_random_next=Column(is_random.astype(bool)),
        source=Column(source.astype(np.min_scalar_type(len(job.corpus.sources)))),
    )
    return Part(chunk.split, table, totals, keys)


def _tokenize(
    job: Job, chunk: Chunk, totals: Counter[str]
) -> tuple[list[array], list[list[int]], list[int], UInt64[np.ndarray, " sentences"]]:
    """Returns each segment's tokens, its sentences' lengths and its document, and the
    keys of all sentences."""
    tokens, lengths, wholes, every = [], [], [], [np.zeros(0, np.uint64)]
    for number, document in enumerate(chunk.documents):
        for piece in document:
            totals["bytes"] += len(piece.text.encode())
            sentences = corpus.split_sentences(piece, job.corpus.language)
            keys = overlap.sentence_keys(sentences)
            if job.known:
                kept = [i for i, k in enumerate(keys.tolist()) if k not in job.known]
                totals["left_out"] += len(sentences) - len(kept)
                sentences, keys = [sentences[i] for i in kept], keys[kept]
            if space := job.words.before_word:
                sentences[1:] = [f"{space}{sentence}" for sentence in sentences[1:]]
            encoded = [*filter(None, job.words.encode(sentences))]
            if encoded:  # empty if the tokenizer drops every character
                ids = array("i", b"".join(encoded))
                sizes = [len(one) // ids.itemsize for one in encoded]
                totals.update(pieces=1, sentences=len(sizes), tokens=len(ids))
                tokens.append(ids)
                lengths.append(sizes)
                wholes.append(number)
                every.append(keys)
    return tokens, lengths, wholes, np.concatenate(every)
