"""`--mode=extract`: rows in, vectors of a model's layers out (extract_features.py)."""

import bisect
import json
import logging
import math
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple, TextIO

import jax.numpy as jnp
import numpy as np
import orjson
from jaxtyping import Array, Float
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import family, tokenization
from bert_jax.data import truncation
from bert_jax.data.rows import Feature, Rows
from bert_jax.data.tables import Record
from bert_jax.data.word_splitting import bert_words, words_of_tokens
from bert_jax.errors import UserError
from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import Encoded
from bert_jax.models.layers import masked_means
from bert_jax.runtime import storage
from bert_jax.tasks import row_files
from bert_jax.tasks.task import Outputs, Predictor, Task, require_words
from bert_jax.training import setup
from bert_jax.training.inference import Answerer
from bert_jax.types import Arrays

log = logging.getLogger(__name__)

NONE = -1  # the owner of a position that is in no vector
# Bytes of vectors that are computed together, if more than one batch.
WINDOW_BYTES = 256_000_000


def extract(task: Task, folder: storage.Path, source: str, target: str) -> None:
    """Reads JSON lines and writes each row's vectors, in the same order.

    Args:
      task: Any task. Only its encoder and tokenizer are used.
      folder: The work directory with the checkpoint.
      source: A file, or `-` for standard input.
      target: A .jsonl or .safetensors file, written completely or not at all, or `-`
        for JSON lines on standard output.

    Raises:
      UserError: A wrong row, a layer that does not exist, another kind of file, or one
        that cannot be written.
    """
    extractor = Extractor(task.config, task.model_config, task.tokenizer)

    def answers(rows: Iterable[Record]) -> Iterator[Mapping[str, Any]]:
        restored = setup.restored_params(task, folder, ("bert/pooler",), encoder=True)
        chosen, config = family.family_of(task.config), task.model_config
        _, model = chosen.models(config, restored.params)[""]
        params, size = {"bert": model["bert"]}, task.config.predict.batch_size
        answerer = Answerer(extractor, params, restored.mesh, size, config)
        max_characters = row_files.CHARACTERS
        if not extractor.has_row_vectors:  # a character is rarely more than a token
            max_characters = min(
                max_characters, WINDOW_BYTES // (4 * math.prod(extractor.shape))
            )
        for window in answerer.stream(rows, max_characters):
            yield from (answer for _, answer in window)
        extractor.warn()

    write_vectors(extractor, answers, source, target)


def write_vectors(
    chosen: "Choice",
    answers: Callable[[Iterable[Record]], Iterable[Mapping[str, Any]]],
    source: str,
    target: str,
) -> None:
    """Writes each row's vectors, as `extract` does.

    Args:
      chosen: The layers and the kind of the vectors.
      answers: Function of the rows that reads weights, and yields for each row `names`,
        `ids` (of tokens, else empty) and `vectors`: float32 [names, *shape].

    Raises:
      UserError: See `extract`.
    """
    if os.path.isfile(target) and os.path.realpath(source) == os.path.realpath(target):
        raise UserError(f"--output={target}: is --input, whose texts would be lost")
    rows = row_files.input_rows(source)
    ending = storage.storage_path(target).suffix
    if ending not in ("", ".jsonl", ".safetensors"):  # - has none
        raise UserError(
            f"--output={target}: name a FILE.jsonl or a FILE.safetensors, or - for "
            "JSON lines on standard output"
        )
    # First: a path that cannot be written is reported before weights are read.
    with row_files.open_output(target) as file:
        if ending == ".safetensors":
            _write_tensors(file.buffer, chosen, answers(rows))
        else:
            _write_lines(file, chosen, answers(rows))


class Choice:
    """The layers and the kind of the vectors, and the `shape` of one."""

    def __init__(self, config: ConfigDict, last: int, size: int):
        """Reads `config.predict`.

        Args:
          last: The last layer.
          size: Size of a layer's vector.

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
        self.places = [n if n >= 0 else last + 1 + n for n in self.layers]
        joined = len(self.layers) if self.combine == "concatenated" else 1
        stacked = (len(self.layers),) if self.combine == "none" else ()
        self.shape = (*stacked, joined * size)  # shape of a vector

    @property
    def has_row_vectors(self) -> bool:
        """Whether a row has one vector."""
        return self.vectors in ("cls", "mean")


class Pieces(NamedTuple):
    """A text's tokens, and the word that each belongs to."""

    ids: list[int]
    words: list[int]  # ascending
    names: Mapping[int, str]  # the words' names


class Extractor(Choice, Predictor):
    """Vectors of the tokens or words of `{"text", "text_b"?}` or `{"words"}`, or of the
    whole row."""

    def __init__(self, config: ConfigDict, model: BertConfig, tokenizer: Tokenizer):
        """Copies the tokenizer.

        Raises:
          UserError: a layer of `config.predict.layers` does not exist.
        """
        super().__init__(config, model.num_hidden_layers, model.hidden_size)
        self._model = family.FAMILIES[model.architecture].with_heads.trunk(model)
        self.max_seq_length, self._causal = model.max_position_embeddings, model.causal
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        # "[SEP]" inside a text is text, as in Google's tokenizer.
        self._tokenizer.encode_special_tokens = True
        self._special = tokenization.special_ids(tokenizer)
        self._kind = tokenization.kind_of(tokenizer)
        self._tokens = tokenization.tokens_by_id(tokenizer)
        self._cut = 0

    def warn(self) -> None:
        """Logs how many texts were cut since it last did."""
        if self._cut:
            log.warning(
                "texts cut at the model's %d positions: %d",
                *(self.max_seq_length, self._cut),
            )
        self._cut = 0

    def parse_row(self, row: dict[str, Any]) -> Feature:
        """Checks and encodes a row, and cuts it to the model's positions.

        A position belongs to the vector `owners[position]`, or to none (-1). A vector
        is the mean of its positions. Their names are `Feature.info`.

        Raises:
          ValueError: It has neither a text nor words, or both.
        """
        if ("words" in row) == ("text" in row):
            raise ValueError('either "text" or "words" is required')
        if "words" in row:
            texts = [self._encode_words(require_words(row))]
            if row.get("text_b") is not None:
                raise ValueError('"text_b" goes with "text", not with "words"')
        else:
            names = ["text", "text_b"][: 1 + (row.get("text_b") is not None)]
            texts = [self._encode_text(row[name], name) for name in names]
        room = self.max_seq_length - 2 - len(self._special.between) * (len(texts) - 1)
        lengths = [len(text.ids) for text in texts]
        if sum(lengths) > room:
            self._cut += 1
            (first, second), odd = [*lengths, 0][:2], self._kind.odd_to_longer
            kept = truncation.pair_lengths(first, second, room, odd)
            lengths = [*kept[: len(texts)]]
        return self._feature(texts, lengths)

    def _encode_words(self, words: Sequence[str]) -> Pieces:
        encoding = self._tokenizer.encode(
            [f"{self._kind.before_word}{word}" for word in words],
            is_pretokenized=True,
            add_special_tokens=False,
        )
        ids, owners = encoding.ids, _drop_special(encoding.word_ids)
        for word in sorted(set(range(len(words))) - set(owners)):
            # Nothing is left of a control character, but every word has a vector.
            place = bisect.bisect_left(owners, word)
            ids.insert(place, self._special.unk)
            owners.insert(place, word)
        return Pieces(ids, owners, dict(enumerate(words)))

    def _encode_text(self, text: Any, name: str) -> Pieces:
        if not isinstance(text, str):
            raise ValueError(f'"{name}" is not a string')
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        if self.vectors not in ("words", "words_mean"):
            return Pieces(encoding.ids, _drop_special(encoding.word_ids), {})
        owners, spans = words_of_tokens(encoding.offsets, bert_words(text))
        names = {word: text[slice(*span)].strip() for word, span in enumerate(spans)}
        return Pieces(encoding.ids, owners, names)

    def _feature(self, texts: Sequence[Pieces], lengths: Sequence[int]) -> Feature:
        tokens = self._special
        ids, segments, owners = [tokens.cls], [0], [NONE]
        names: list[str] = []
        for index, (text, length) in enumerate(zip(texts, lengths, strict=True)):
            after = tokens.between if index + 1 < len(texts) else (tokens.last,)
            ids += [*text.ids[:length], *after]
            segments += [index] * (length + len(after))
            for place, word in enumerate(text.words[:length]):
                is_first = not place or text.words[place - 1] != word
                name = text.names.get(word, " ")  # an empty name is white space
                if is_first and text.names and name:
                    names.append(name)
                keeps = name and (is_first or self.vectors == "words_mean")
                owners.append(len(names) - 1 if keeps else NONE)
            owners += [NONE] * len(after)
        match self.vectors:
            case "pieces":
                owners = list(range(len(ids)))
                names = [self._tokens[id_] for id_ in ids]
            case "cls":
                # Left to right, [CLS] attends only to itself. See Bert.cls_vector.
                place = len(ids) - 1 if self._causal else 0
                owners = [0 if i == place else NONE for i in range(len(ids))]
                names = [self._tokens[ids[place]]]
            case "mean":
                special = (tokens.cls, *tokens.between, tokens.last)
                owners = [NONE if id_ in special else 0 for id_ in ids]
                names = ["[MEAN]"]
        columns = {"input_ids": ids, "segment_ids": segments, "owners": owners}
        return Feature(0, {n: np.array(x, np.int32) for n, x in columns.items()}, names)

    def make_rows(self, features: Sequence[Feature]) -> Rows:
        """Returns rows of ids and owners."""
        return Rows(features, {"input_ids": self._special.pad, "owners": NONE})

    def decode_one(self, feature: Feature, output: Outputs) -> dict[str, Any]:
        """Returns `names`, `ids` (of tokens, else empty) and `vectors`: float32
        [names, *shape]."""
        names: list[str] = feature.info
        ids = feature.columns["input_ids"] if self.vectors == "pieces" else ()
        vectors = output["vectors"][: len(names)]
        return {"names": names, "ids": list(ids), "vectors": vectors}

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """Returns the vectors of a batch: `vectors` [batch, count, *shape], float32.

        A row has as many vectors as positions, or one (`has_row_vectors`). Vectors past
        its last are 0, or for tokens padding's.
        """
        states = self.states(params, batch)
        chosen = [states[place].astype(jnp.float32) for place in self.places]
        match self.combine:
            case "none":
                combined = jnp.stack(chosen, axis=2)
            case "concatenated":
                combined = jnp.concatenate(chosen, axis=2)
            case "sum" | "mean":
                count = len(chosen) if self.combine == "mean" else 1
                combined = sum(chosen[1:], chosen[0]) / count
        if self.vectors == "pieces":
            return {"vectors": combined}
        count = 1 if self.has_row_vectors else batch["owners"].shape[1]
        return {"vectors": masked_means(combined, batch["owners"], count)}

    def states(
        self, params: Any, batch: Arrays
    ) -> Sequence[Float[Array, "batch length hidden"]]:
        """Returns the embeddings' output, and each layer's."""
        encoded = self._model.apply(
            {"params": params["bert"]},
            batch["input_ids"],
            batch["input_mask"],
            batch["segment_ids"],
        )
        assert isinstance(encoded, Encoded)
        return encoded.hidden_states


def _drop_special(words: Sequence[int | None]) -> list[int]:
    """Returns each token's word. Special tokens, which lack one, are not there yet."""
    return [word for word in words if word is not None]


Answers = Iterable[Mapping[str, Any]]


def _write_lines(file: TextIO, chosen: Choice, answers: Answers) -> None:
    """Writes lines as extract_features.py does, with its misspelled `linex_index`.

    A row has `features`: each has its `token` and, per layer, `index` and `values` to
    six decimals. Passes each row on at once.
    """
    layers = chosen.layers
    indices = layers if chosen.combine == "none" else (list(layers),)
    for count, answer in enumerate(answers):
        vectors = np.round(answer["vectors"].astype(np.float64), 6)
        vectors = vectors.reshape(len(vectors), len(indices), chosen.shape[-1])
        features = []
        for name, each in zip(answer["names"], vectors, strict=True):
            pairs = zip(indices, each, strict=True)
            values = [{"index": index, "values": values} for index, values in pairs]
            features.append({"token": name, "layers": values})
        row = {"linex_index": count, "features": features}
        form = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        file.write(orjson.dumps(row, option=form).decode())
        file.flush()


def _write_tensors(file: BinaryIO, chosen: Choice, answers: Answers) -> None:
    """Writes a safetensors file, the vectors as they come.

    It has `vectors` [total, *shape] float32, `offsets` [rows + 1] int64 (row i's
    vectors are those from offsets[i] to offsets[i + 1]) and, for vectors of tokens,
    `input_ids` [total] int32. The last two (4 bytes a vector) stay in memory until the
    end.
    """
    about = {"combine": chosen.combine, "vectors": chosen.vectors}
    about["layers"] = json.dumps(chosen.layers)
    room = 1024 + 8 * len(about["layers"])  # of the header, whose numbers come last
    file.write(bytes(8 + room))
    offsets, ids = array("q", [0]), array("i")
    for answer in answers:
        file.write(np.ascontiguousarray(answer["vectors"], "<f4").data)
        offsets.append(offsets[-1] + len(answer["vectors"]))
        ids.extend(answer["ids"])
    total = offsets[-1]
    tensors = {
        "vectors": ("F32", [total, *chosen.shape], 4),
        "offsets": ("I64", [len(offsets)], 8),
    }
    file.write(np.array(offsets, "<i8").data)
    if chosen.vectors == "pieces":
        tensors["input_ids"] = ("I32", [total], 4)
        file.write(np.array(ids, "<i4").data)
    header: dict[str, Any] = {"__metadata__": about}
    start = 0
    for name, (dtype, shape, size) in tensors.items():
        end = start + size * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
        start = end
    file.seek(0)
    file.write(room.to_bytes(8, "little") + json.dumps(header).encode().ljust(room))
