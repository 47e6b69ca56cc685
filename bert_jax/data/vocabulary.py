"""A vocabulary trained on an even sample of a corpus."""

import heapq
import json
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.data import atomic_folder, chunks, corpus
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.runtime import storage
from bert_jax.tokenization.wordpiece import WORDPIECE


def prepare_tokenizer(config: ConfigDict) -> Tokenizer:
    """Returns the config's tokenizer (`tokenization.of_config`), or trains one.

    A trained tokenizer is stored in `<corpus.data_dir>/vocabulary-<fingerprint>`. It
    is trained on the training split only.

    Raises:
      UserError: see `tokenization.of_config` and `corpus.read_documents`.
    """
    tokenizer = tokenization.of_config(config)
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
        **chunks.chunk_settings(config),
    }
    if not settings.strip_accents:  # other vocabularies keep their names
        identity["strip_accents"] = False
    kind = FAMILIES[config.model.architecture].vocabulary
    if kind is not WORDPIECE:
        identity["kind"] = kind.name
    folder = data_dir / f"vocabulary-{atomic_folder.folder_fingerprint(identity)}"
    if not (folder / "metadata.json").exists():
        with atomic_folder.made_whole(folder, "metadata.json") as temporary:
            _train(config, identity, temporary)
    return tokenization.load(folder / "tokenizer.json")


def _train(config: ConfigDict, identity: dict[str, Any], folder: Path) -> None:
    """Trains and saves vocab.txt, tokenizer.json and metadata.json.

    Raises:
      UserError: The sample has no text, because a document exceeds `sample_bytes`.
    """
    start, settings = time.monotonic(), config.tokenizer
    split_of = chunks.split_rule(config)
    texts = (
        piece.text
        for index, document in enumerate(chunks.cut_documents(config))
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
    size = sum(len(text.encode()) for text in sample)
    print(
        f"trained a vocabulary of {settings.vocab_size:,} pieces on "
        f"{size / 1e6:.1f} MB of text in {time.monotonic() - start:.1f} s",
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
