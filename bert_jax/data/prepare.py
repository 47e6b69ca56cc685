"""From text to sentence pairs on disk, once: a TFDS data set of sharded ArrayRecord.

    documents -> train and dev -> chunks -> (on every core) sentences -> token ids
    -> pairs -> a shard for each chunk

A chunk's records follow from its documents and (seed, split, chunk) alone, so the
result is the same whatever the number of cores. Memory holds a few chunks for each
core, whatever the size of the corpus. The folder's name is a fingerprint of all that
shaped it, and it takes this name when it is complete.
"""

import contextlib
import hashlib
import io
import itertools
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from jaxtyping import Int64
from ml_collections import ConfigDict
from tokenizers import Tokenizer
from tqdm import tqdm

from bert_jax import storage, tokenization
from bert_jax.data import corpus, pairs, records, vocabulary, workers
from bert_jax.data.shards import Chunk, Job, Shard, part_path, write_shard
from bert_jax.errors import UserError

FORMAT = 1  # to be raised when the same settings would give other records
# Bytes of text to a chunk, hence to a shard (some 6 MB of records at length 128): a
# constant, so that the number of cores changes nothing. A random B comes from its A's
# own chunk, which has to hold many documents therefore (here 2,500 articles or 20
# books), and a corpus should not fall into crumbs (English Wikipedia: 2,500 shards);
# but each core holds a chunk in memory.
CHUNK_BYTES = 8 << 20
_SPLITS = ("train", "dev")


def prepare(config: ConfigDict, max_seq_length: int) -> storage.Path:
    """Returns the folder with the corpus's sentence pairs; made if it is missing.

    It opens with `tfds.builder_from_directory` and holds, beside the splits `train`
    and `dev`, token_counts.npy and preparation.json (settings and totals).

    Args:
      config: the whole config; `seed`, `corpus` and `tokenizer` matter.
      max_seq_length: tokens of a row, [CLS] and [SEP] included.

    Raises:
      UserError: see `corpus.documents`; too few documents; a full disk.
    """
    settings = _settings(config, max_seq_length)
    tokenizer = prepare_tokenizer(config)
    identity = {
        "format": FORMAT,
        "sources": corpus.identity(tuple(config.corpus.sources)),
        "tokenizer": hashlib.sha256(tokenizer.to_str().encode()).hexdigest(),
        "settings": settings._asdict(),
        "dev_fraction": config.corpus.dev_fraction,
        "language": config.corpus.language,
        "libraries": [
            f"{n} {metadata.version(n)}" for n in ("sentencex", "tokenizers")
        ],
        "seed": config.seed,
    }
    folder = storage.path(config.corpus.data_dir) / f"pairs-{_fingerprint(identity)}"
    if not _is_whole(folder, "preparation.json"):
        with _made_whole(folder, "preparation.json") as temporary:
            _write(config, tokenizer, settings, identity, temporary)
    return folder


def prepare_tokenizer(config: ConfigDict) -> Tokenizer:
    """Returns the tokenizer of `config.tokenizer`; trained if there is no vocab_file.

    A trained one is kept in `<corpus.data_dir>/vocabulary-<fingerprint>`. It is
    trained on documents of the training split only.

    Raises:
      UserError: see `tokenization.load` and `corpus.documents`.
    """
    wanted = config.tokenizer
    if wanted.vocab_file:
        return tokenization.load(wanted.vocab_file, wanted.lowercase)
    identity = {
        "format": FORMAT,
        "sources": corpus.identity(tuple(config.corpus.sources)),
        "vocab_size": wanted.vocab_size,
        "lowercase": wanted.lowercase,
        "sample_bytes": wanted.sample_bytes,
        "dev_fraction": config.corpus.dev_fraction,
        "seed": config.seed,
    }
    name = f"vocabulary-{_fingerprint(identity)}"
    folder = storage.path(config.corpus.data_dir) / name
    if not _is_whole(folder, "metadata.json"):
        with _made_whole(folder, "metadata.json") as temporary:
            split_of = _split_rule(config)
            training = (
                (index, document.text)
                for index, document in enumerate(_documents(config))
                if split_of(index) == "train"
            )
            vocabulary.write(training, wanted, config.seed, identity, temporary)
    return tokenization.load(folder / "tokenizer.json")


def token_counts(folder: storage.Path) -> Int64[np.ndarray, " vocab"]:
    """How often each id stands in the training split's tokens_a and tokens_b."""
    return np.load(io.BytesIO((folder / "token_counts.npy").read_bytes()))


def _settings(config: ConfigDict, max_seq_length: int) -> pairs.Settings:
    if max_seq_length < 5:  # [CLS] A [SEP] B [SEP]
        raise UserError(f"corpus.max_seq_length={max_seq_length}: at least 5 is needed")
    return pairs.Settings(
        max_seq_length, config.corpus.short_seq_prob, config.corpus.nsp
    )


def _fingerprint(identity: dict[str, Any]) -> str:
    text = json.dumps(identity, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_whole(folder: storage.Path, last: str) -> bool:
    """Whether it is all there; in a bucket `last` tells, the file copied last."""
    return (folder / last if storage.in_bucket(folder) else folder).exists()


@contextlib.contextmanager
def _made_whole(folder: storage.Path, last: str) -> Iterator[Path]:
    """Gives a temporary folder that becomes `folder` in the end, or vanishes.

    Where another process was faster, its result stays: the two are the same.
    """
    if storage.in_bucket(folder):
        with tempfile.TemporaryDirectory() as here:
            try:
                yield Path(here)
            except OSError as error:
                raise UserError(
                    f"{here}: cannot write the prepared data, which is copied to "
                    f"{folder} then ({error.strerror or error}); free some space, or "
                    "set TMPDIR to another folder"
                ) from error
            storage.upload(Path(here), folder, last)
        return
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        temporary.chmod(0o755)
        yield temporary
        if not folder.exists():
            try:
                temporary.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
    except OSError as error:
        raise UserError(
            f"{folder.parent}: cannot write the prepared data "
            f"({error.strerror or error}); free some space or set corpus.data_dir"
        ) from error
    finally:
        if temporary is not None and temporary.exists():
            shutil.rmtree(temporary)


def _documents(config: ConfigDict) -> Iterator[corpus.Document]:
    data_dir = storage.path(config.corpus.data_dir)
    return corpus.documents(tuple(config.corpus.sources), data_dir)


def _split_rule(config: ConfigDict) -> Callable[[int], str]:
    """Returns the split of a document, by its index.

    A document is held back when a hash of its index falls below dev_fraction. So that
    a few books will do, the first hundred documents (or as many as there are) are
    counted, and of these those with the two lowest hashes are always held back, those
    with the two highest never; one each where there are two or three documents.
    """
    fraction = config.corpus.dev_fraction
    if not 0 < fraction < 1:
        raise UserError(f"corpus.dev_fraction={fraction}: must be between 0 and 1")
    count = sum(1 for _ in itertools.islice(_documents(config), 100))
    if count < 2:
        raise UserError(
            "corpus.sources: one document cannot be trained on and held back at once: "
            "give two (sentences: an empty line ends a document; text: a file is one)"
        )

    def place(index: int) -> float:
        return vocabulary.keyed_hash(config.seed, "dev", index)

    order = sorted(range(count), key=place)
    least = 2 if count >= 4 else 1
    settled = dict.fromkeys(order[:least], "dev") | dict.fromkeys(
        order[-least:], "train"
    )
    return lambda index: settled.get(
        index, "dev" if place(index) < fraction else "train"
    )


def _chunks(
    documents: Iterator[corpus.Document], split_of: Callable[[int], str]
) -> Iterator[Chunk]:
    """Groups each split's documents into chunks of CHUNK_BYTES, in their order.

    A chunk has two documents at least, and what is left over at the end joins the
    chunk before when it is less than half of one.
    """
    filling: dict[str, list[corpus.Document]] = {split: [] for split in _SPLITS}
    full: dict[str, list[corpus.Document]] = {}  # to which the rest may be added
    size: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for index, document in enumerate(documents):
        split = split_of(index)
        filling[split].append(document)
        size[split] += len(document.text.encode())
        if size[split] >= CHUNK_BYTES and len(filling[split]) >= 2:
            if split in full:
                yield Chunk(split, number[split], full[split])
                number[split] += 1
            full[split], filling[split], size[split] = filling[split], [], 0
    for split in _SPLITS:
        rest = filling[split]
        if split in full:
            if size[split] < CHUNK_BYTES / 2 or len(rest) < 2:
                full[split] += rest
                rest = []
            yield Chunk(split, number[split], full.pop(split))
            number[split] += 1
        if rest:
            yield Chunk(split, number[split], rest)


def _write(
    config: ConfigDict,
    tokenizer: Tokenizer,
    settings: pairs.Settings,
    identity: dict[str, Any],
    folder: Path,
) -> None:
    """Fills an empty folder."""
    start = time.monotonic()
    job = Job(folder, tokenizer, config.corpus.language, config.seed, settings)
    chunks = _chunks(_documents(config), _split_rule(config))
    shards = []
    counts = np.zeros(tokenizer.get_vocab_size(), np.int64)
    with (
        tqdm(desc="preparing", unit="B", unit_scale=True, disable=None) as progress,
        contextlib.closing(workers.ordered_map(write_shard, job, chunks)) as results,
    ):
        for shard, shard_counts in results:
            shards.append(shard)
            if shard.split == "train":
                counts += shard_counts
            progress.update(shard.totals["bytes"])
    _write_metadata(shards, folder)
    np.save(folder / "token_counts.npy", counts)
    totals = {
        split: sum((s.totals for s in shards if s.split == split), Counter())
        for split in _SPLITS
    }
    with open(folder / "preparation.json", "w", encoding="utf-8") as file:
        json.dump(identity | {"totals": totals}, file, indent=1)
    total, seconds = totals["train"] + totals["dev"], time.monotonic() - start
    print(
        f"prepared {total['documents']:,} documents, {total['sentences']:,} sentences, "
        f"{total['tokens']:,} tokens: {total['pairs']:,} pairs in {seconds:.1f} s, "
        f"{total['bytes'] / 1e6 / seconds:.2f} MB of text/s",
        file=sys.stderr,
    )


def _write_metadata(shards: list[Shard], folder: Path) -> None:
    """Names the shards as TFDS does and describes them for `builder_from_directory`."""
    template = tfds.core.ShardedFileTemplate(
        data_dir=folder, dataset_name="pairs", filetype_suffix="array_record"
    )
    infos = []
    for split in _SPLITS:
        parts = sorted((s for s in shards if s.split == split), key=lambda s: s.number)
        names = template.replace(split=split)
        for part in parts:
            final = names.sharded_filepath(
                shard_index=part.number, num_shards=len(parts)
            )
            part_path(folder, split, part.number).rename(final)
        infos.append(
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=[part.totals["pairs"] for part in parts],
                num_bytes=sum(
                    path.stat().st_size for path in folder.glob(f"pairs-{split}.*")
                ),
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
