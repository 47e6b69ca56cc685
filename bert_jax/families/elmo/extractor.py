"""`--mode=extract` of an ELMo: the vectors of words, or their mean."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.data.rows import Batch, Feature, Rows
from bert_jax.errors import UserError
from bert_jax.extract import NONE, Extractor
from bert_jax.families.elmo import characters
from bert_jax.families.elmo.config import ElmoConfig
from bert_jax.families.elmo.model import Elmo
from bert_jax.families.elmo.rows import Words, rule
from bert_jax.tasks.task import Outputs, require_words
from bert_jax.types import Arrays


class ElmoExtractor(Extractor):
    """`{"text"}` or `{"words"}` -> the vectors of its words.

    A row is read by itself, as `bert_jax.families.elmo.load` does.
    """

    def __init__(self, config: ConfigDict, model: ElmoConfig, tokenizer: Tokenizer):  # type: ignore[override]
        """Reads `config.task.words`, which specifies where words end.

        Raises:
          UserError: A layer does not exist, or an ELMo does not have such vectors.
        """
        del tokenizer  # the tokenizer of the words to predict
        self.choose(config, model.num_hidden_layers, 2 * model.hidden_size)
        if self.vectors in ("pieces", "cls"):
            raise UserError(
                f"config.predict.vectors={self.vectors}: an ELMo reads whole words; "
                "set --config.predict.vectors=words, or mean"
            )
        self._model = Elmo(model)  # type: ignore[assignment]
        self._length, self.max_seq_length = model.max_characters, sys.maxsize
        self._words = Words(rule(config), model.max_characters)

    def warn(self) -> None:
        """Does nothing: a text of any length is read whole."""

    def parse_row(self, row: dict[str, Any]) -> Feature:
        """Cuts a row into words.

        Raises:
          ValueError: It has neither a text nor words, or both, or a second text.
        """
        if ("words" in row) == ("text" in row):
            raise ValueError('either "text" or "words" is required')
        if row.get("text_b") is not None:
            raise ValueError('"text_b": an ELMo reads one text of a row')
        if "words" in row:
            names = require_words(row)
            words = [self._words.normal(word) for word in names]
        else:
            if not isinstance(row["text"], str):
                raise ValueError('"text" is not a string')
            encoding = self._words.encode(row["text"])
            words = encoding.tokens
            names = [row["text"][start:end] for start, end in encoding.offsets]
            if self._words.is_full:  # the numbers of words are not used here
                self._words.forget()
        owners = [NONE, *range(len(words)), NONE]
        if self.vectors == "mean":
            owners = [NONE, *(0 for _ in words), NONE]
            names = ["[MEAN]"]
        read = [characters.BEGIN, *words, characters.END]
        ids = characters.of_words(read, self._length)
        columns = {"input_ids": np.arange(len(read)), "owners": np.array(owners)}
        return Feature(0, columns, (names, ids))

    def make_rows(self, features: Sequence[Feature]) -> Rows:
        """Rows whose batches have the words' characters."""
        return _Characters(features, {"owners": NONE})

    def decode_one(self, feature: Feature, output: Outputs) -> dict[str, Any]:
        """Returns `names` and `vectors`, as the other extractor."""
        names, _ = feature.info
        return super().decode_one(feature._replace(info=names), output)

    def states(
        self, params: Any, batch: Arrays
    ) -> Sequence[Float[Array, "batch length both"]]:
        """Returns the words' vectors, twice, and each layer's outputs in both
        directions."""
        layers, _ = self._model.apply(
            {"params": params["elmo"]}, batch["characters"], method="layers"
        )
        return [layers[:, layer] for layer in range(layers.shape[1])]


class _Characters(Rows):
    """Sequences with their words' characters, as `Feature.info`."""

    def __init__(self, features: Sequence[Feature], fill: Mapping[str, int]):
        super().__init__(features, fill)
        self._characters = [feature.info[1] for feature in features]

    def batch(self, indices: Int[np.ndarray, "batch"], length: int) -> Batch:
        """Returns a batch as `Rows.batch` does, and `characters`, [batch, words,
        length]."""
        rows = [self._characters[index] for index in indices]
        characters = np.zeros((len(rows), length, rows[0].shape[-1]), np.int32)
        for place, row in zip(characters, rows, strict=True):
            place[: len(row)] = row
        return {**super().batch(indices, length), "characters": characters}
