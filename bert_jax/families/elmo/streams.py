"""Text as streams of words, on disk once, for language models that read words.

    documents -> train and dev -> sentences -> words -> ids in the order of frequency

A split is one array of ids: of each sentence <S>, then its words. The folder has every
word of the text, also those that are too rare for a vocabulary, because ELMo reads
their characters. It is named after all that shaped it, and appears when complete. Dev
has no sentence that train has as well. Memory holds the distinct words, the held-out
sentences and, once at the end, the ids of a split (four bytes each).
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Int32, Int64
from ml_collections import ConfigDict
from tokenizers import PreTokenizedString, Tokenizer, models, pre_tokenizers

from bert_jax import tokenization
from bert_jax.data import atomic_folder, chunks, corpus, overlap
from bert_jax.errors import UserError
from bert_jax.families.elmo import characters
from bert_jax.runtime import storage

FORMAT = 1  # raise it when the same settings would give other streams
SPECIAL = (characters.BEGIN, characters.END, characters.UNKNOWN)
SPLITS = ("train", "dev")
# What `task.word_ends` may be: words end at spaces and punctuation (each character of
# which is a word), or at spaces only (the text has been cut into words already).
CUTS = {
    "punctuation": pre_tokenizers.BertPreTokenizer,
    "spaces": pre_tokenizers.WhitespaceSplit,
}
_REPORT = "preparation.json"
_FREQUENT, _WIDTH = 10, 20  # words that `text` shows, and characters of each

Cut = Callable[[str], list[str]]
Spans = list[tuple[str, tuple[int, int]]]  # words, with their characters of a text


class Stream(NamedTuple):
    """A split."""

    ids: Int32[np.ndarray, " words"]  # 0 begins a sentence
    starts: Int64[np.ndarray, " sentences_and_end"]  # each sentence's, then the end


class Prepared(NamedTuple):
    """The prepared data that `prepare` wrote."""

    folder: storage.Path
    words: list[str]  # a word's index is its id. <S>, </S>, <UNK> first
    counts: Int64[np.ndarray, " words"]  # in train
    report: dict[str, Any]

    def stream(self, split: str) -> Stream:
        """Returns the ids of a split, as they are on the disk."""
        place = str(self.folder / split)
        ids = np.load(f"{place}.npy", mmap_mode="r")
        return Stream(ids, np.load(f"{place}-starts.npy"))

    def tokenizer(self, config: ConfigDict) -> Tokenizer:
        """Returns a tokenizer of the `config.tokenizer.vocab_size` most frequent words,
        or all, in order."""
        kept = self.words[: config.tokenizer.vocab_size]
        vocabulary = {word: index for index, word in enumerate(kept)}
        # The stubs of `tokenizers` leave the arguments out.
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL[2]))  # type: ignore[call-arg]
        tokenizer.normalizer, tokenizer.pre_tokenizer = rules(config)
        return tokenizer


def prepare(config: ConfigDict, recorded: str = "") -> Prepared:
    """Returns the corpus's streams of words, after making them if they are missing.

    Args:
      config: Config of the run: `corpus`, `tokenizer.lowercase`, `strip_accents` and
        `task.word_ends` matter.
      recorded: Name of the folder when the run started. It is enough, if it exists
        and has these settings, and the text may be gone.

    Raises:
      UserError: See `corpus.read_documents` and `chunks.split_rule`. The text has
        changed since the run started, or no held-out sentence is left.
    """
    data_dir, settings = storage.storage_path(config.corpus.data_dir), _settings(config)
    if storage.in_bucket(data_dir):
        raise UserError(
            f"config.corpus.data_dir={data_dir}: streams of words are read from a "
            "disk; name a folder of this machine"
        )
    if recorded and (data_dir / recorded / _REPORT).exists():
        prepared = _opened(data_dir / recorded)
        if settings.items() <= prepared.report.items():
            return prepared
    identity = settings | {
        "format": FORMAT,
        "sources": corpus.text_identity(tuple(config.corpus.sources)),
        "libraries": [
            f"{n} {metadata.version(n)}" for n in ("sentencex", "tokenizers")
        ],
    }
    folder = data_dir / f"words-{atomic_folder.folder_fingerprint(identity)}"
    if recorded and folder.name != recorded:
        raise UserError(
            "config.corpus.sources: the text has changed since the run started, and "
            f"the data prepared then, {recorded}, is not in config.corpus.data_dir="
            f"{config.corpus.data_dir}: restore either, or use another --workdir"
        )
    if not (folder / _REPORT).exists():
        with atomic_folder.create_folder(folder, _REPORT) as temporary:
            _write(config, identity, temporary)
    return _opened(folder)


def text(folder: storage.Path) -> str:
    """Describes a folder's contents in three lines."""
    data = _opened(folder)
    totals = data.report["totals"]
    lines = [
        f"{split}: {totals[split]['sentences']:,} sentences, "
        f"{totals[split]['words']:,} words"
        for split in SPLITS
    ]
    lines[-1] += (
        f"; {totals['left_out']:,} sentences were left out because train has them"
    )
    words = data.words[len(SPECIAL) : len(SPECIAL) + _FREQUENT]
    frequent = [
        word if len(word) <= _WIDTH else f"{word[:_WIDTH]}..." for word in words
    ]
    lines.append(
        f"{totals['distinct']:,} distinct words, {totals['cut']:,} of more than "
        f"{characters.LENGTH - 2} bytes; the most frequent: {' '.join(frequent)}"
    )
    return "\n".join(lines)


def cutter(config: ConfigDict) -> Cut:
    """Returns the function that cuts a text into words by `config.task.word_ends`."""
    normalizer, pre_tokenizer = rules(config)

    def cut(text: str) -> list[str]:
        normal = normalizer.normalize_str(text)
        return [word for word, _ in pre_tokenizer.pre_tokenize_str(normal)]

    return cut


def span_cutter(config: ConfigDict) -> Callable[[str], Spans]:
    """Returns the function that cuts a text as `cutter`'s does, with each word's first
    character in the text, and the one after it."""
    normalizer, pre_tokenizer = rules(config)

    def cut(text: str) -> Spans:
        pretokenized = PreTokenizedString(text)
        pretokenized.normalize(normalizer.normalize)
        pre_tokenizer.pre_tokenize(pretokenized)
        splits = pretokenized.get_splits("original", "char")
        return [(word, span) for word, span, _ in splits]

    return cut


def rules(config: ConfigDict) -> tuple[Any, Any]:
    """Returns a normalizer and a pre-tokenizer, by `config.tokenizer` and
    `task.word_ends`."""
    settings = config.tokenizer
    normalizer = tokenization.bert_normalizer(
        settings.lowercase, settings.strip_accents
    )
    return normalizer, CUTS[config.task.word_ends]()


def _settings(config: ConfigDict) -> dict[str, Any]:
    return {
        "words": config.task.word_ends,
        "lowercase": config.tokenizer.lowercase,
        "strip_accents": config.tokenizer.strip_accents,
        **chunks.chunk_settings(config.corpus),
    }


def _opened(folder: storage.Path) -> Prepared:
    try:
        report = json.loads((folder / _REPORT).read_bytes())
        words = (folder / "words.txt").read_bytes().decode().split("\n")[:-1]
        counts = np.load(str(folder / "counts.npy"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder}: cannot be read ({error}); delete this folder to prepare the "
            "data again"
        ) from error
    return Prepared(folder, words, counts, report)


class _Writer:
    """A split's ids, numbered as words are first met, and renumbered at the end."""

    def __init__(self, folder: Path, split: str):
        self.path = folder / f"{split}.raw"
        self.lengths: list[int] = []
        self._file: BinaryIO = self.path.open("wb")

    def add(self, ids: list[int]) -> None:
        """Adds a sentence's ids."""
        self.lengths.append(len(ids) + 1)
        self._file.write(np.array([0, *ids], np.int32).tobytes())

    def close(self, order: Int32[np.ndarray, " words"]) -> int:
        """Writes the arrays and returns the number of words."""
        self._file.close()
        ids = np.fromfile(self.path, np.int32)
        ids[:] = order[ids]
        starts = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])
        np.save(self.path.with_suffix(".npy"), ids)
        np.save(self.path.with_name(f"{self.path.stem}-starts.npy"), starts)
        self.path.unlink()
        return len(ids) - len(self.lengths)


def _write(config: ConfigDict, identity: dict[str, Any], folder: Path) -> None:
    ids = {word: index for index, word in enumerate(SPECIAL)}
    counts: Counter[int] = Counter()
    train, dev = (_Writer(folder, split) for split in SPLITS)
    held_back: list[tuple[list[str], str]] = []
    with (folder / "keys").open("wb") as keys:
        for split, sentence, words in _sentences(config):
            if split == "dev":
                held_back.append((words, sentence))
                continue
            numbers = [ids.setdefault(word, len(ids)) for word in words]
            counts.update(numbers)
            train.add(numbers)
            keys.write(overlap.sentence_keys([sentence]).tobytes())
    held_keys = overlap.sentence_keys(sentence for _, sentence in held_back)
    known = np.isin(held_keys, overlap.find_known_keys(folder / "keys", held_keys))
    (folder / "keys").unlink()
    for (words, _), is_known in zip(held_back, known, strict=True):
        if not is_known:
            dev.add([ids.setdefault(word, len(ids)) for word in words])
    if not (train.lengths and dev.lengths):
        raise UserError(
            "corpus.sources: the training documents have every held-out sentence too, "
            "so the text repeats itself; remove the copies, or raise "
            "corpus.dev_fraction"
        )
    words = list(ids)
    ranked = sorted(range(len(SPECIAL), len(ids)), key=lambda i: (-counts[i], words[i]))
    ranked = [*range(len(SPECIAL)), *ranked]
    order = np.empty(len(ids), np.int32)
    order[ranked] = np.arange(len(ids), dtype=np.int32)
    totals = {
        "train": {"sentences": len(train.lengths), "words": train.close(order)},
        "dev": {"sentences": len(dev.lengths), "words": dev.close(order)},
        "distinct": len(ids) - len(SPECIAL),
        "left_out": int(known.sum()),
        "cut": characters.count_cut_words(words),
    }
    np.save(folder / "counts.npy", np.array([counts[i] for i in ranked], np.int64))
    text = "".join(f"{words[i]}\n" for i in ranked)
    (folder / "words.txt").write_bytes(text.encode())
    report = json.dumps(identity | {"totals": totals}, indent=1)
    (folder / _REPORT).write_text(report, encoding="utf-8")


def _sentences(config: ConfigDict) -> Iterator[tuple[str, str, list[str]]]:
    """Yields each sentence's split, text and words, without sentences that have no
    words."""
    split_of, cut = chunks.split_rule(config.corpus), cutter(config)
    for index, document in enumerate(chunks.cut_documents(config.corpus)):
        split = split_of(index)
        for piece in document:
            for sentence in corpus.split_sentences(piece, config.corpus.language):
                if words := cut(sentence):
                    yield split, sentence, words
