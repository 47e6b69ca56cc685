"""Writing of a corpus's sentence pairs: train, then dev without train's sentences.

Each core turns chunks of documents into shards of records.
"""

import contextlib
import functools
import importlib.util
import json
import os
import pickle
import random
import secrets
import shutil
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from array_record.python import array_record_module
from jaxtyping import Int64, UInt64
from ml_collections import ConfigDict
from tokenizers import Tokenizer
from tqdm import tqdm

from bert_jax import tokenization
from bert_jax.data import chunks, corpus, overlap, pairs, records, workers
from bert_jax.data.chunks import Chunk
from bert_jax.data.words import Words
from bert_jax.errors import UserError


class Job(NamedTuple):
    """The settings that the chunks of a corpus share."""

    folder: Path
    words: Words
    vocabulary: int  # tokens
    corpus: ConfigDict  # config.corpus
    settings: pairs.Settings
    separator: int  # the id between documents that share rows
    # For dev, after all of train is written: keys of the sentences to leave out.
    known: frozenset[int] = frozenset()

    def aside(self) -> Path:
        """Returns the folder of temporary files, deleted at the end."""
        return self.folder / "aside"


class Shard(NamedTuple):
    """A report of the records written for a chunk."""

    split: str
    number: int
    # documents, pieces (segments), sentences, left_out (sentences), tokens, pairs,
    # bytes (of text), with `corpus.weights` source_N_documents and source_N_pairs, and
    # where there are any random (pairs with a random second part)
    totals: Counter[str]
    counts: Int64[np.ndarray, " vocab"]  # count of each id in tokens_a and tokens_b
    keys: UInt64[np.ndarray, " sentences"]  # see overlap.keys


def part_path(folder: Path, split: str, number: int) -> Path:
    """Returns the path of a shard until the number of shards is known."""
    return folder / f"{split}-{number}"


# `workers.ordered_map`, or the same on Apache Beam.
OrderedMap: TypeAlias = Callable[
    [Callable[[Job, Chunk], Shard], Job, Iterable[Chunk]],
    Generator[Shard, None, None],
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
    config: ConfigDict,
    tokenizer: Tokenizer,
    settings: pairs.Settings,
    identity: dict[str, Any],
    folder: Path,
) -> None:
    """Writes both splits and their metadata into a new folder.

    Raises:
      UserError: see `chunks.split_rule`, or train has all the held-out sentences too.
    """
    start = time.monotonic()
    job = Job(
        folder.absolute(),
        Words(tokenizer),
        tokenizer.get_vocab_size(),
        config.corpus,
        settings,
        tokenization.special_ids(tokenizer).sep,
    )
    aside = job.aside()
    aside.mkdir()
    ordered_map = runner_map(config.corpus)
    with tqdm(desc="preparing", unit="B", unit_scale=True, disable=None) as progress:
        train, counts, held_back = _write_train(ordered_map, job, config, progress)
        keys = overlap.in_file(aside / "train", np.concatenate(held_back))
        known = frozenset(keys.tolist())
        stored = (aside / f"dev-{number}" for number in range(len(held_back)))
        held_out = (pickle.loads(path.read_bytes()) for path in stored)
        results = ordered_map(write_shard, job._replace(known=known), held_out)
        with contextlib.closing(results):
            dev = [_without_arrays(shard, progress) for shard in results]
    shards = train + dev
    shutil.rmtree(aside)
    totals = {
        split: sum((s.totals for s in shards if s.split == split), Counter())
        for split in chunks.SPLITS
    }
    totals["dev"].update(left_out=0)  # adding counters drops zeros
    if not totals["dev"]["pairs"]:
        raise UserError(
            "corpus.sources: the training documents have every held-out sentence too, "
            "so the text repeats itself; remove the copies, or raise "
            "corpus.dev_fraction"
        )
    _write_metadata(shards, folder)
    np.save(folder / "token_counts.npy", counts)
    with open(folder / "preparation.json", "w", encoding="utf-8") as file:
        json.dump(identity | {"totals": totals}, file, indent=1)
    total, seconds = totals["train"] + totals["dev"], time.monotonic() - start
    print(
        f"prepared {total['documents']:,} documents, {total['sentences']:,} sentences, "
        f"{total['tokens']:,} tokens: {total['pairs']:,} pairs in {seconds:.1f} s, "
        f"{total['bytes'] / 1e6 / seconds:.2f} MB of text/s",
        file=sys.stderr,
    )


def _write_train(
    ordered_map: OrderedMap, job: Job, config: ConfigDict, progress: tqdm
) -> tuple[list[Shard], Int64[np.ndarray, " vocab"], list[UInt64[np.ndarray, " _"]]]:
    """Writes train, and stores dev's chunks.

    Returns:
      Train's shards, the ids' counts in all of them, and the keys of the sentences of
      each chunk of dev. The keys of train's sentences are in `aside / "train"`.
    """
    every_chunk = chunks.group_chunks(
        chunks.cut_documents(config), chunks.split_rule(config)
    )
    shards, held_back = [], []
    counts = np.zeros(job.vocabulary, np.int64)
    results = ordered_map(first_pass, job, every_chunk)
    with contextlib.closing(results), (job.aside() / "train").open("wb") as keys:
        for shard in results:
            if shard.split == "dev":
                held_back.append(shard.keys)
                continue
            counts += shard.counts
            keys.write(shard.keys.tobytes())
            shards.append(_without_arrays(shard, progress))
    return shards, counts, held_back


def _without_arrays(shard: Shard, progress: tqdm) -> Shard:
    """Returns the report only, because there may be thousands of shards."""
    progress.update(shard.totals["bytes"])
    return shard._replace(counts=shard.counts[:0], keys=shard.keys[:0])


def first_pass(job: Job, chunk: Chunk) -> Shard:
    """Writes a chunk of train. Stores one of dev, which is written later, and returns
    its keys."""
    if chunk.split == "train":
        return write_shard(job, chunk)
    (job.aside() / f"dev-{chunk.number}").write_bytes(pickle.dumps(chunk))
    keys = overlap.sentence_keys(
        sentence
        for document in chunk.documents
        for piece in document
        for sentence in corpus.split_sentences(piece, job.corpus.language)
    )
    none = np.zeros(0, np.int64)
    return Shard(chunk.split, chunk.number, Counter(), none, keys)


def write_shard(job: Job, chunk: Chunk) -> Shard:
    """Writes a chunk's pairs to one ArrayRecord file, at `part_path`.

    Raises:
      OSError: the disk is full.
    """
    totals: Counter[str] = Counter()
    tokens, lengths, wholes, keys = _tokenize(job, chunk, totals)
    totals["documents"] = len(set(wholes))
    source_of = [document[0].source for document in chunk.documents]
    if by_source := bool(job.corpus.weights):  # the loader needs the pairs'
        totals.update(f"source_{source_of[n]}_documents" for n in set(wholes))
    rng = random.Random(f"{job.corpus.seed} {chunk.split} {chunk.number} pairs")
    drawn: Iterable[pairs.Pair] = pairs.draw_pairs(lengths, rng, job.settings, wholes)
    if job.corpus.full_sentences:
        longest = job.settings.max_seq_length - 2  # without a row's first and last
        ids, drawn = pairs.full_sentences(
            tokens, lengths, wholes, longest, job.separator
        )
        tokens = [ids]
    encoded = [records.encode_varints(np.frombuffer(ids, np.int32)) for ids in tokens]
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
            writer.write(records.serialize_pair(tokens_a, tokens_b, is_random_next))
            for part in (a, b):
                used += tokens[part.document][part.start : part.stop]
            totals["pairs"] += 1
            if is_random_next:
                totals["random"] += 1
            if by_source:
                totals[f"source_{source_of[wholes[a.document]]}_pairs"] += 1
        writer.close()
    except RuntimeError as error:  # ArrayRecord's, for a full disk
        raise UserError(
            f"config.corpus.data_dir: cannot write the prepared data ({error}); make "
            "room there, or name another folder"
        ) from error
    new.rename(part_path(job.folder, chunk.split, chunk.number))
    counts = np.bincount(used, minlength=job.vocabulary)
    return Shard(chunk.split, chunk.number, totals, counts, keys)


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


def _write_metadata(shards: list[Shard], folder: Path) -> None:
    """Names the shards as TFDS does and describes them for `builder_from_directory`."""
    import tensorflow_datasets as tfds  # slow, and no worker calls this

    template = tfds.core.ShardedFileTemplate(
        data_dir=folder, dataset_name="pairs", filetype_suffix="array_record"
    )
    infos = []
    for split in chunks.SPLITS:
        parts = [shard for shard in shards if shard.split == split]
        names = template.replace(split=split)
        paths = names.sharded_filepaths(num_shards=len(parts))
        for part, path in zip(parts, paths, strict=True):
            part_path(folder, split, part.number).rename(path)
        infos.append(
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=[part.totals["pairs"] for part in parts],
                num_bytes=sum(map(os.path.getsize, paths)),
                filename_template=names,
            )
        )
    tfds.folder_dataset.write_metadata(
        data_dir=folder,
        features=records.record_features(),
        split_infos=infos,
        check_data=False,  # would need TensorFlow
        description="Sentence pairs for BERT's pre-training.",
    )
