"""Preparation of text as sentence pairs on disk: a table for train and one for dev.

    documents -> segments -> train and dev (-> a vocabulary, on a sample) -> chunks
    -> (on every core) sentences -> token ids -> pairs -> rows of a table

Dev is written last, without the sentences that train also has.
A chunk's rows depend on its documents and (seed, split, chunk) alone, so the number
of cores does not change the result. Memory holds a few chunks per core, whatever the
size of the corpus. The folder is named after a fingerprint of everything that
determines its content, and is renamed to that name once complete.
"""

import hashlib
import heapq
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.data import atomic_folder, chunks, corpus, pairs, writing
from bert_jax.data.table import Table
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.runtime import storage, untrusted

_REPORT = "preparation.json"
_TOKENIZER = "tokenizer.json"
_COLUMNS = ("tokens", "tokens.ends", "size_a", "is_random_next", "source")


class Prepared(NamedTuple):
    """Sentence pairs on disk, as `open_folder` found them."""

    folder: storage.Path  # complete
    tokenizer: Tokenizer  # with which its texts were tokenized
    report: dict[str, Any]  # the settings, and `totals` of each split

    def table(self, split: str) -> Table:
        """Returns the rows of a split, whose columns `writing.Part` describes.

        Raises:
          UserError: they are missing or damaged.
        """
        try:
            return Table.open(atomic_folder.local_copy(self.folder / split), _COLUMNS)
        except (OSError, EOFError, ValueError) as error:
            raise UserError(
                f"{self.folder}: cannot be read ({error}); delete this folder to "
                "prepare the data again"
            ) from error

    def token_counts(self) -> Int64[np.ndarray, " vocab"]:
        """Returns how often each id is in the training split's pairs."""
        return np.load(io.BytesIO((self.folder / "token_counts.npy").read_bytes()))

    def unknown_share(self) -> float:
        """Returns the fraction of [UNK] among the tokens of the training split."""
        counts = self.token_counts()
        unknown = tokenization.special_ids(self.tokenizer).unk
        return float(counts[unknown] / max(1, counts.sum()))


def prepare_tokenizer(config: ConfigDict) -> Tokenizer:
    """Returns `tokenization.load_config_tokenizer`'s tokenizer, or trains one.

    A trained tokenizer is stored in `<corpus.data_dir>/vocabulary-<fingerprint>`. It
    is trained on the training split only.

    Raises:
      UserError: see `tokenization.load_config_tokenizer` and `corpus.read_documents`.
    """
    tokenizer = tokenization.load_config_tokenizer(config)
    if tokenizer is not None:
        return tokenizer
    settings = config.tokenizer
    data_dir = storage.storage_path(config.corpus.data_dir)
    identity = {
        "format": chunks.FORMAT,
        "sources": corpus.text_identity(tuple(config.corpus.sources)),
        "vocab_size": settings.vocab_size,
        "lowercase": settings.lowercase,
        "sample_bytes": settings.sample_bytes,
        "strip_accents": settings.strip_accents,
        "kind": FAMILIES[config.model.architecture].vocabulary.name,
        **chunks.chunk_settings(config.corpus),
    }
    folder = data_dir / f"vocabulary-{atomic_folder.folder_fingerprint(identity)}"
    if not (folder / "metadata.json").exists():
        with atomic_folder.create_folder(folder, "metadata.json") as temporary:
            _train_tokenizer(config, identity, temporary)
    return tokenization.load(folder / "tokenizer.json")


def _train_tokenizer(
    config: ConfigDict, identity: dict[str, Any], folder: Path
) -> None:
    """Trains and saves vocab.txt, tokenizer.json and metadata.json.

    Raises:
      UserError: The sample has no text, because a document exceeds `sample_bytes`.
    """
    settings = config.tokenizer
    split_of = chunks.split_rule(config.corpus)
    texts = (
        piece.text
        for index, document in enumerate(chunks.cut_documents(config.corpus))
        if split_of(index) == "train"
        for piece in document
    )
    # A trainer's time grows with the square of a word's letters.
    endless = re.compile(r"(?<!\w)\w{10000,}")
    sample = [
        endless.sub(" ", text)
        for text in sample_documents(texts, settings.sample_bytes, config.corpus.seed)
    ]
    if not sample:
        raise UserError(
            f"tokenizer.sample_bytes={settings.sample_bytes}: a document drawn for the "
            "vocabulary is longer than this; raise it"
        )
    tokenizer = FAMILIES[config.model.architecture].vocabulary.train(
        sample, settings.vocab_size, settings.lowercase, settings.strip_accents
    )
    tokenization.save_tokenizer(tokenizer, folder)
    (folder / "metadata.json").write_text(json.dumps(identity, indent=1), "utf-8")
    print(
        f"trained a vocabulary of {settings.vocab_size:,} pieces on {len(sample):,} "
        "documents",
        file=sys.stderr,
    )


def sample_documents(documents: Iterable[str], max_bytes: int, seed: int) -> list[str]:
    """Samples whole documents, each with the same chance, up to `max_bytes` in total.

    Ranks documents by a hash of their index and keeps the first ones, as many as fit.
    Only those are in memory.

    Args:
      documents: Texts.
      max_bytes: Maximum bytes of UTF-8.
      seed: Seed of the hash.

    Returns:
      The texts, in the order of the documents.
    """
    kept: list[tuple[float, int, str, int]] = []  # a heap, the highest rank on top
    total, limit = 0, 1.0  # ranks from `limit` on did not fit
    for index, text in enumerate(documents):
        rank = chunks.keyed_hash(seed, "vocabulary", index)
        if rank >= limit:
            continue
        size = len(text.encode())
        heapq.heappush(kept, (-rank, index, text, size))
        total += size
        while total > max_bytes:
            dropped, _, _, size = heapq.heappop(kept)
            total, limit = total - size, -dropped
    return [text for _, _, text, _ in sorted(kept, key=lambda entry: entry[1])]


def prepare_pairs(
    settings: ConfigDict,
    max_seq_length: int,
    tokenizer: Tokenizer,
    recorded: str = "",
) -> Prepared:
    """Returns the corpus's sentence pairs, and makes them if they are missing.

    Their folder has the tables `train` and `dev`, token_counts.npy, the vocabulary and
    preparation.json (settings and totals). It is named after the settings and the sizes
    and times of the text's files.

    Args:
      settings: `config.corpus`.
      max_seq_length: Tokens of a row, [CLS] and [SEP] included.
      recorded: Name of the folder when a resumed run started. It is enough, if it
        exists and has these settings, and the text may be gone.

    Raises:
      UserError: see `corpus.read_documents` and `writing.write_dataset`, or the disk is
        full, or the run began with other text.
    """
    shape = pairs.Settings(max_seq_length, settings.short_seq_prob, settings.nsp)
    identity = {
        "format": chunks.FORMAT,
        "settings": shape._asdict(),
        **chunks.chunk_settings(settings),
        "full_sentences": settings.full_sentences,
        "tokenizer": hashlib.sha256(tokenizer.to_str().encode()).hexdigest(),
    }
    data_dir = storage.storage_path(settings.data_dir)
    prepared = reopen(data_dir, recorded)
    if prepared and identity.items() <= prepared.report.items():
        return prepared
    identity |= {
        "sources": corpus.text_identity(tuple(settings.sources)),
        "libraries": [
            f"{n} {metadata.version(n)}" for n in ("sentencex", "tokenizers")
        ],
    }
    folder = data_dir / f"pairs-{atomic_folder.folder_fingerprint(identity)}"
    if recorded not in ("", folder.name):
        raise UserError(
            "config.corpus.sources: the text has changed since the run started, and "
            f"the data prepared then, {recorded}, is not in config.corpus.data_dir="
            f"{settings.data_dir}: restore either (cp -p and rsync -a keep "
            "times), or use another --workdir"
        )
    if not (folder / _REPORT).exists():
        with atomic_folder.create_folder(folder, _REPORT) as temporary:
            tokenization.save_tokenizer(tokenizer, temporary)
            writing.write_dataset(settings, tokenizer, shape, identity, temporary)
    return open_folder(folder)


def open_folder(folder: storage.Path) -> Prepared:
    """Opens the pairs that `prepare_pairs` wrote to a folder, without needing the text.

    Raises:
      UserError: they are missing or damaged.
    """
    report = untrusted.read_object(folder / _REPORT)
    return Prepared(folder, tokenization.load(folder / _TOKENIZER), report)


def reopen(data_dir: storage.Path, recorded: str) -> Prepared | None:
    """Opens the folder that a run has recorded, unless it is gone."""
    is_there = recorded and (data_dir / recorded / _REPORT).exists()
    return open_folder(data_dir / recorded) if is_there else None


def report_text(data: Prepared) -> str:
    """Returns the sizes, the overlap, and the fraction of [UNK]."""
    totals = data.report["totals"]
    lines = [
        f"{split}: {total['documents']:,} documents, {total['sentences']:,} sentences, "
        f"{total['tokens']:,} tokens, {total['pairs']:,} pairs"
        f" ({total.get('random', 0) / max(1, total['pairs']):.1%} random)"
        for split, total in totals.items()
    ]
    lines += describe_dev(totals)
    length = data.token_counts().sum() / totals["train"]["pairs"]
    lines.append(f"a pair of train: {length:.1f} tokens, without special ones")
    lines.append(f"[UNK]: {data.unknown_share():.3%} of train's tokens")
    return "\n".join(lines)


def describe_dev(totals: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yields lines: the size of dev, and its overlap with the training text.

    Args:
      totals: Totals of each split, in preparation.json.
    """
    dev = totals["dev"]
    before = dev["sentences"] + dev["left_out"]
    share = dev["tokens"] / (dev["tokens"] + totals["train"]["tokens"])
    yield f"held out: {dev['sentences']:,} sentences ({share:.1%} of the tokens)"
    yield (
        f"not among them: {dev['left_out']:,} ({dev['left_out'] / before:.1%}) that "
        "the training text has too"
    )
