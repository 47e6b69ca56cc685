"""Writing of a corpus's sentence pairs: train, then dev without train's sentences."""

import contextlib
import functools
import importlib.util
import json
import os
import pickle
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow_datasets as tfds
from jaxtyping import Int64, UInt64
from ml_collections import ConfigDict
from tokenizers import Tokenizer
from tqdm import tqdm

from bert_jax import tokenization
from bert_jax.data import chunks, overlap, pairs, records, workers
from bert_jax.data.shards import Chunk, Job, Shard, first_pass, part_path, write_shard
from bert_jax.data.words import Words
from bert_jax.errors import UserError

# `workers.ordered_map`, or the same on Apache Beam.
OrderedMap: TypeAlias = Callable[
    [Callable[[Job, Chunk], Shard], Job, Iterable[Chunk]],
    Generator[Shard, None, None],
]
# Fraction of the pairs. Half are random, and also all whose chunk is one sentence.
_MUCH_RANDOM = 0.9


def mapper(settings: ConfigDict) -> OrderedMap:
    """Returns `corpus.runner`'s map, or that of this machine's cores without one.

    Args:
      settings: `config.corpus`.

    Raises:
      UserError: the runner is not installed, or its options are wrong.
    """
    if not settings.runner:
        return workers.ordered_map
    if importlib.util.find_spec("apache_beam") is None:
        raise UserError(
            f"config.corpus.runner={settings.runner}: Apache Beam is not installed; "
            "pip install '.[beam]'"
        )
    from bert_jax.data import beam  # slow

    beam.pipeline(settings)
    return functools.partial(beam.ordered_map, settings)


def write(
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
        config.corpus.language,
        config.corpus.seed,
        settings,
        by_source=bool(config.corpus.weights),
    )
    if config.corpus.full_sentences:
        job = job._replace(separator=tokenization.special_ids(tokenizer).sep)
    aside = job.aside()
    aside.mkdir()
    ordered_map = mapper(config.corpus)
    with tqdm(desc="preparing", unit="B", unit_scale=True, disable=None) as progress:
        train, counts, held_back = _write_train(ordered_map, job, config, progress)
        known = frozenset(overlap.in_file(aside / "train", held_back).tolist())
        results = ordered_map(write_shard, job._replace(known=known), _dev_chunks(job))
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
    _report(totals, settings, time.monotonic() - start)


def _report(totals: dict, settings: pairs.Settings, seconds: float) -> None:
    total = totals["train"] + totals["dev"]
    print(
        f"prepared {total['documents']:,} documents, {total['sentences']:,} sentences, "
        f"{total['tokens']:,} tokens: {total['pairs']:,} pairs in {seconds:.1f} s, "
        f"{total['bytes'] / 1e6 / seconds:.2f} MB of text/s",
        file=sys.stderr,
    )
    if (share := records.random_share(total)) >= _MUCH_RANDOM:
        print(
            f"warning: in {share:.1%} of the pairs the second sentence is a random "
            "one: where a document is one sentence, or a sentence fills a row of "
            f"{settings.max_seq_length}, there is no next one, and what does not fit "
            "is cut off; end sentences in the text, join texts into documents, raise "
            "corpus.max_seq_length, or set corpus.nsp=False",
            file=sys.stderr,
        )


def _write_train(
    ordered_map: OrderedMap, job: Job, config: ConfigDict, progress: tqdm
) -> tuple[list[Shard], Int64[np.ndarray, " vocab"], UInt64[np.ndarray, " sentences"]]:
    """Writes train, and saves dev's chunks to a file for `_dev_chunks`.

    Returns:
      Train's shards, the ids' counts in all of them, and the keys of dev's sentences.
      The keys of train's sentences are in `aside / "train"`.
    """
    every_chunk = chunks.chunks(chunks.documents(config), chunks.split_rule(config))

    def with_dev_saved() -> Iterator[Chunk]:
        with (job.aside() / "dev").open("wb") as file:
            for chunk in every_chunk:
                if chunk.split == "dev":
                    pickle.dump(chunk, file)
                yield chunk

    shards, held_back = [], []
    counts = np.zeros(job.vocabulary, np.int64)
    results = ordered_map(first_pass, job, with_dev_saved())
    with contextlib.closing(results), (job.aside() / "train").open("wb") as keys:
        for shard in results:
            if shard.split == "dev":
                held_back.append(shard.keys)
                continue
            counts += shard.counts
            keys.write(shard.keys.tobytes())
            shards.append(_without_arrays(shard, progress))
    return shards, counts, np.concatenate(held_back)


def _dev_chunks(job: Job) -> Iterator[Chunk]:
    """Yields the chunks that `_write_train` has saved."""
    with (job.aside() / "dev").open("rb") as file, contextlib.suppress(EOFError):
        while True:
            yield pickle.load(file)


def _without_arrays(shard: Shard, progress: tqdm) -> Shard:
    """Returns the report only, because there may be thousands of shards."""
    progress.update(shard.totals["bytes"])
    return shard._replace(counts=shard.counts[:0], keys=shard.keys[:0])


def _write_metadata(shards: list[Shard], folder: Path) -> None:
    """Names the shards as TFDS does and describes them for `builder_from_directory`."""
    template = tfds.core.ShardedFileTemplate(
        data_dir=folder, dataset_name="pairs", filetype_suffix="array_record"
    )
    infos = []
    for split in chunks.SPLITS:
        parts = sorted((s for s in shards if s.split == split), key=lambda s: s.number)
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
        features=records.features(),
        split_infos=infos,
        check_data=False,  # would need TensorFlow
        description="Sentence pairs for BERT's pre-training.",
    )
