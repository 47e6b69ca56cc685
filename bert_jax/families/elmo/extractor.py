"""`--mode=extract`: the vectors of words, or their mean."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from ml_collections import ConfigDict

from bert_jax.data.tables import Record, Row
from bert_jax.errors import UserError
from bert_jax.extract import Choice, write_vectors
from bert_jax.families.elmo import loading, streams
from bert_jax.runtime.storage import Path
from bert_jax.tasks import row_files
from bert_jax.tasks.task import require_finite, require_text, require_words


def extract(folder: Path, config: ConfigDict, source: str, target: str) -> None:
    """Reads `{"text"}` or `{"words"}` and writes the vectors of the words, those of
    `bert_jax.families.elmo.load`. A row is read by itself.

    Args:
      folder: A folder with released files, or a run.
      config: Config whose `task.word_ends` specifies where words end.
      source, target: As in `bert_jax.extract.extract`.

    Raises:
      UserError: See `loading.read` and `bert_jax.extract.extract`. Also, an ELMo does
        not have such vectors.
    """
    model = loading.load(folder)
    sizes = model.config
    chosen = Choice(config, sizes.num_hidden_layers, 2 * sizes.hidden_size)
    if chosen.vectors not in ("words", "mean"):
        raise UserError(
            f"config.predict.vectors={chosen.vectors}: an ELMo reads whole words; "
            "set --config.predict.vectors=words, or mean"
        )
    cut, (normalizer, _) = streams.span_cutter(config), streams.rules(config)

    def parse(row: Row) -> tuple[list[str], list[str]]:
        """Returns a row's words as they are read, and as they are written."""
        if ("words" in row) == ("text" in row):
            raise ValueError('either "text" or "words" is required')
        if row.get("text_b") is not None:
            raise ValueError('"text_b": an ELMo reads one text of a row')
        if "words" in row:
            names = require_words(row)
            plain = ("".join(normalizer.normalize_str(name).split()) for name in names)
            # One word each, never empty.
            return [x or name for x, name in zip(plain, names, strict=True)], names
        text = require_text(row, "text")
        spans = cut(text)
        return [word for word, _ in spans], [text[slice(*span)] for _, span in spans]

    def answers(records: Iterable[Record]) -> Iterator[Mapping[str, Any]]:
        size = config.predict.batch_size
        for window in row_files.row_windows(records, parse, size):
            read = [parsed for _, parsed in window]
            encoded = model.encode([words for words, _ in read])
            for (_, names), layers in zip(read, encoded, strict=True):
                vectors = _combined(layers, chosen)
                if chosen.vectors == "mean":
                    names, vectors = ["[MEAN]"], _mean(vectors)
                require_finite({"vectors": vectors})
                yield {"names": names, "ids": (), "vectors": vectors}

    write_vectors(chosen, answers, source, target)


def _combined(
    layers: Float[np.ndarray, "layers words both"], chosen: Choice
) -> Float[np.ndarray, "words *shape"]:
    found = [layers[place] for place in chosen.places]
    match chosen.combine:
        case "none":
            return np.stack(found, axis=1)
        case "concatenated":
            return np.concatenate(found, axis=1)
    total = sum(found[1:], found[0])
    return total / len(found) if chosen.combine == "mean" else total


def _mean(vectors: Float[np.ndarray, "words *shape"]) -> np.ndarray:
    """Returns the mean over words, or 0 without a word."""
    total = vectors.sum(axis=0, keepdims=True)
    return total / np.float32(max(1, len(vectors)))
