"""`--mode=extract`: rows in, vectors of BERT's layers out (extract_features.py)."""

import bisect
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.data import truncation
from bert_jax.data.rows import Feature, Rows
from bert_jax.data.word_splitting import bert_words, words_of_tokens
from bert_jax.errors import UserError
from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import Encoded
from bert_jax.models.pooling import means
from bert_jax.tasks.task import Outputs, Predictor
from bert_jax.types import Arrays

log = logging.getLogger(__name__)

NONE = -1  # the owner of a position that is in no vector


class Pieces(NamedTuple):
    """A text's pieces, and the word that each belongs to."""

    ids: list[int]
    words: list[int]  # ascending
    names: Mapping[int, str]  # of the words


class Extractor(Predictor):
    """`{"text", "text_b"?}` or `{"words"}` -> the vectors of its pieces, its words or
    itself."""

    def __init__(self, config: ConfigDict, model: BertConfig, tokenizer: Tokenizer):
        """Copies the tokenizer.

        Raises:
          UserError: a layer of `config.predict.layers` does not exist.
        """
        self.choose(config, model.num_hidden_layers, model.hidden_size)
        self._model = FAMILIES[model.architecture].trunk(model)
        self.max_seq_length, self._causal = model.max_position_embeddings, model.causal
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        # "[SEP]" inside a text is text, as in Google's tokenizer.
        self._tokenizer.encode_special_tokens = True
        self._special = tokenization.special_ids(tokenizer)
        self._last = tokenization.last_id(tokenizer)
        self._between = tokenization.between(tokenizer)
        self._kind = tokenization.kind_of(tokenizer)
        self._space = self._kind.before_word
        self._pieces = tokenization.pieces_of(tokenizer)
        self._cut = self._empty = 0

    def choose(self, config: ConfigDict, last: int, size: int) -> None:
        """Sets what is extracted.

        Args:
          last: the last layer.
          size: numbers of a layer's vector.

        Raises:
          UserError: a layer of `config.predict.layers` does not exist.
        """
        self.layers = tuple(config.predict.layers)
        self.combine, self.vectors = config.predict.combine, config.predict.vectors
        for layer in self.layers:
            if not -last <= layer <= last:
                raise UserError(
                    f"config.predict.layers={self.layers}: there is no layer {layer}: "
                    f"0 is the embeddings' output, 1 to {last} are the layers, -1 to "
                    f"-{last} the same from the last; choose with "
                    "--config.predict.layers=-1"
                )
        self._places = [n if n >= 0 else last + 1 + n for n in self.layers]
        joined = len(self.layers) if self.combine == "concatenated" else 1
        stacked = (len(self.layers),) if self.combine == "none" else ()
        self.shape = (*stacked, joined * size)  # of a vector

    @property
    def of_whole_rows(self) -> bool:
        """Whether a row has one vector."""
        return self.vectors in ("cls", "mean")

    @property
    def bytes_per_vector(self) -> int:
        """Of float32."""
        return 4 * math.prod(self.shape)

    def warn(self) -> None:
        """Logs how many texts were cut since it last did, and how many lack a mean."""
        if self._cut:
            log.warning(
                "texts cut at the model's %d positions: %d",
                *(self.max_seq_length, self._cut),
            )
        if self._empty:
            log.warning("texts without pieces, whose mean is 0: %d", self._empty)
        self._cut = self._empty = 0

    def parse(self, row: dict[str, Any]) -> Feature:
        """Checks and encodes a row; cuts it to the model's positions.

        A position belongs to the vector `owners[position]`, or to none (-1); a vector
        is the mean of its positions. Their names are `Feature.info`.

        Raises:
          ValueError: it has neither a text nor words, or both.
        """
        if ("words" in row) == ("text" in row):
            raise ValueError('either "text" or "words" is required')
        if "words" in row:
            texts = [self._of_words(row["words"])]
            if row.get("text_b") is not None:
                raise ValueError('"text_b" goes with "text", not with "words"')
        else:
            names = ["text", "text_b"][: 1 + (row.get("text_b") is not None)]
            texts = [self._of_text(row[name], name) for name in names]
        room = self.max_seq_length - 2 - len(self._between) * (len(texts) - 1)
        lengths = [len(text.ids) for text in texts]
        if sum(lengths) > room:
            self._cut += 1
            if len(lengths) == 1:
                lengths = [room]
            else:
                first, second = lengths
                odd = self._kind.odd_to_longer
                lengths = [*truncation.pair_lengths(first, second, room, odd)]
        return self._feature(texts, lengths)

    @staticmethod
    def checked(words: Any) -> list[str]:
        """The words of a row; raises ValueError if they are none."""
        if not isinstance(words, list) or not all(
            isinstance(word, str) and word for word in words
        ):
            raise ValueError('"words" must be a list of strings, none of them empty')
        return words

    def _of_words(self, words: Any) -> Pieces:
        words = self.checked(words)
        encoding = self._tokenizer.encode(
            [f"{self._space}{word}" for word in words],
            is_pretokenized=True,
            add_special_tokens=False,
        )
        ids, owners = encoding.ids, _whole(encoding.word_ids)
        for word in sorted(set(range(len(words))) - set(owners)):
            # Nothing is left of a control character; every word has a vector.
            place = bisect.bisect_left(owners, word)
            ids.insert(place, self._special.unk)
            owners.insert(place, word)
        return Pieces(ids, owners, dict(enumerate(words)))

    def _of_text(self, text: Any, name: str) -> Pieces:
        if not isinstance(text, str):
            raise ValueError(f'"{name}" is not a string')
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        if self.vectors not in ("words", "words_mean"):
            return Pieces(encoding.ids, _whole(encoding.word_ids), {})
        owners, spans = words_of_tokens(encoding.offsets, bert_words(text))
        names = {word: text[slice(*span)].strip() for word, span in enumerate(spans)}
        return Pieces(encoding.ids, owners, names)

    def _feature(self, texts: Sequence[Pieces], lengths: Sequence[int]) -> Feature:
        ids, segments, owners = [self._special.cls], [0], [NONE]
        names: list[str] = []
        for index, (text, length) in enumerate(zip(texts, lengths, strict=True)):
            after = self._between if index + 1 < len(texts) else (self._last,)
            ids += [*text.ids[:length], *after]
            segments += [index] * (length + len(after))
            for place, word in enumerate(text.words[:length]):
                is_first = not place or text.words[place - 1] != word
                name = text.names.get(word, " ")  # empty: white space
                if is_first and text.names and name:
                    names.append(name)
                keeps = name and (is_first or self.vectors == "words_mean")
                owners.append(len(names) - 1 if keeps else NONE)
            owners += [NONE] * len(after)
        match self.vectors:
            case "pieces":
                owners = list(range(len(ids)))
                names = [self._pieces[id_] for id_ in ids]
            case "cls":
                # Left to right [CLS] has seen nothing; see Bert.first.
                place = len(ids) - 1 if self._causal else 0
                owners = [0 if i == place else NONE for i in range(len(ids))]
                names = [self._pieces[ids[place]]]
            case "mean":
                special = (self._special.cls, *self._between, self._last)
                owners = [NONE if id_ in special else 0 for id_ in ids]
                names = ["[MEAN]"]
                self._empty += 0 not in owners
        columns = {"input_ids": ids, "segment_ids": segments, "owners": owners}
        return Feature(0, {n: np.array(x, np.int32) for n, x in columns.items()}, names)

    def table(self, features: Sequence[Feature]) -> Rows:
        """Rows of ids and owners."""
        return Rows(features, {"input_ids": self._special.pad, "owners": NONE})

    def answer(self, feature: Feature, output: Outputs) -> dict[str, Any]:
        """Returns `names`, `ids` (of pieces, else empty) and `vectors`: float32
        [names, *shape]."""
        names: list[str] = feature.info
        ids = feature.columns["input_ids"] if self.vectors == "pieces" else ()
        vectors = output["vectors"][: len(names)]
        return {"names": names, "ids": list(ids), "vectors": vectors}

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """The vectors of a batch: `vectors` [batch, count, *shape], float32.

        A row has as many as positions, or one (`of_whole_rows`); those past its last
        are 0, or for pieces padding's.
        """
        states = self.states(params, batch)
        chosen = [states[place].astype(jnp.float32) for place in self._places]
        match self.combine:
            case "none":
                combined = jnp.stack(chosen, axis=2)
            case "concatenated":
                combined = jnp.concatenate(chosen, axis=2)
            case "sum" | "mean":
                combined = sum(chosen[1:], chosen[0])
                combined = (
                    combined / len(chosen) if self.combine == "mean" else combined
                )
        if self.vectors == "pieces":
            return {"vectors": combined}
        count = 1 if self.of_whole_rows else batch["owners"].shape[1]
        return {"vectors": means(combined, batch["owners"], count)}

    def states(
        self, params: Any, batch: Arrays
    ) -> Sequence[Float[Array, "batch length hidden"]]:
        """The embeddings' output, and each layer's."""
        encoded = self._model.apply(
            {"params": params["bert"]},
            batch["input_ids"],
            batch["input_mask"],
            batch["segment_ids"],
        )
        assert isinstance(encoded, Encoded)
        return encoded.hidden_states


def _whole(words: Sequence[int | None]) -> list[int]:
    """The word of each piece; only special tokens have none, and there are none yet."""
    return [word for word in words if word is not None]
