"""Static vectors of words: gensim's word2vec, trained on a corpus and kept on disk."""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from tokenizers import Tokenizer

from bert_jax.data import corpus
from bert_jax.errors import UserError, first_line
from bert_jax.runtime import temporary, terminal
from bert_jax.tokenization import normalization
from experiments.lib import command_line

# gensim's defaults, written out: CBOW, five words on each side, five epochs.
SETTINGS = {"vector_size": 100, "window": 5, "min_count": 5, "epochs": 5, "seed": 1}
_LINE = 1000  # words of a document that are trained on together; gensim cuts at 10,000


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    """The words of a text as the model sees them, before they are cut into pieces."""
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def trained(
    sources: Sequence[str], tokenizer: Tokenizer, folder: Path, to_read: int = 0
) -> Any:
    """Word2vec's vectors (gensim's `KeyedVectors`), from `folder` if they are there.

    Two trainings on several cores differ, as gensim's threads do not wait for each
    other: so the vectors are kept.

    Args:
      sources: as `config.corpus.sources`.
      tokenizer: gives the words.
      folder: where the vectors are kept, under a hash of the text and the settings.
      to_read: words, in all epochs: of the text's beginning, or in more epochs if it
        has too few. 0: the whole text.

    Raises:
      UserError: gensim is not installed, or no word occurs often enough; see also
        `corpus.documents`.
    """
    command_line.require("gensim", "senses", "word2vec needs gensim")
    from gensim.models import Word2Vec

    identity = corpus.identity(tuple(sources), folder)
    settings = dict(SETTINGS, **{"words": to_read} if to_read else {})
    known = json.dumps([identity, settings, normalization(tokenizer)], sort_keys=True)
    digest = hashlib.sha256(known.encode()).hexdigest()[:16]
    kept = folder / f"word2vec-{digest}.bin"
    if kept.exists():
        terminal.say(f"word2vec: {kept}, trained before")
    else:
        started = time.monotonic()
        with temporary.folder(kept) as new, temporary.naming(kept):
            most = -(-to_read // SETTINGS["epochs"])
            total = _write(sources, tokenizer, folder, new / "text", most)
            epochs = max(SETTINGS["epochs"], round(to_read / max(total, 1)))
            terminal.say(f"word2vec: training on {total:,} words, {epochs} times")
            try:
                model = Word2Vec(
                    corpus_file=str(new / "text"),
                    workers=os.cpu_count() or 1,
                    **{**SETTINGS, "epochs": epochs},
                )
            except RuntimeError as error:  # "you must first build vocabulary"
                least = SETTINGS["min_count"]
                raise UserError(
                    f"{','.join(sources)}: no word occurs {least} times, which "
                    "word2vec needs; name more text"
                ) from error
            model.wv.save_word2vec_format(str(new / kept.name), binary=True)
            (new / kept.name).replace(kept)
        seconds = time.monotonic() - started
        terminal.say(f"word2vec: {len(model.wv):,} words, {seconds:.0f} s; {kept}")
    return _kept(kept)


def _kept(kept: Path) -> Any:
    """The vectors of a file; raises UserError if it is damaged.

    Not gensim's own format, which is Python's pickle: this one holds only numbers.
    """
    from gensim.models import KeyedVectors

    try:
        vectors = KeyedVectors.load_word2vec_format(str(kept), binary=True)
        if not np.isfinite(vectors.vectors).all():
            raise ValueError("numbers that are not finite")
    except (ValueError, EOFError, OSError) as error:
        why = first_line(error)
        hint = "delete it, and the same command makes it again"
        raise UserError(f"{kept}: damaged ({why}); {hint}") from error
    return vectors


def _write(
    sources: Sequence[str], tokenizer: Tokenizer, folder: Path, target: Path, most: int
) -> int:
    """Writes the first `most` words of all documents (0: all); gives their number."""
    total = 0
    with target.open("w", encoding="utf-8") as file:
        for document in corpus.documents(tuple(sources), folder):
            if most and total >= most:
                break
            found = words(tokenizer, document.text)
            found = found[: most - total] if most else found
            total += len(found)
            for begin in range(0, len(found), _LINE):
                file.write(" ".join(found[begin : begin + _LINE]) + "\n")
    return total


def mean(vectors: Any, context: Sequence[str]) -> Float[np.ndarray, "size"]:
    """The mean of the words that have a vector; zeros if none has one."""
    known = [vectors[word] for word in context if word in vectors]
    return np.mean(known, axis=0) if known else np.zeros(vectors.vector_size)
