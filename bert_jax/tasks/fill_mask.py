"""Prediction with a pre-training model: rows in, guesses for each [MASK] out."""

import logging
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Array
from ml_collections import ConfigDict
from tokenizers import Encoding, Tokenizer

from bert_jax import tokenization
from bert_jax.data import records
from bert_jax.data.encodings import padded
from bert_jax.data.rows import Batch, BatchSize, power_of_two, sorted_groups
from bert_jax.errors import printable
from bert_jax.tasks.task import Outputs, PredictionBatches, Predictor
from bert_jax.types import Arrays

log = logging.getLogger(__name__)

Row = dict[str, Any]
PRINTED = 10  # blanks of a sentence in the closing report


class Parsed(NamedTuple):
    """A row of the input, encoded."""

    encoding: Encoding
    masks: list[int]  # positions of [MASK]
    is_pair: bool


class FillMask(Predictor):
    """`{"text": "... [MASK] ...", "text_b": optional}` -> the same with `masks`."""

    def __init__(
        self,
        config: ConfigDict,
        model: nn.Module,
        tokenizer: Tokenizer,
        *,
        judges_pairs: bool = True,
    ):
        """Stores its arguments.

        Args:
          judges_pairs: the weights were trained to predict whether the second text
            follows the first; if not, omits `is_next_probability`.
        """
        self._judges_pairs, self._warned = judges_pairs, False
        self._config = config
        self._model = model
        self._tokenizer = tokenizer
        self._special = tokenization.special_ids(tokenizer)
        self._kind = tokenization.kind_of(tokenizer)
        self._positions = model.config.max_position_embeddings

    @property
    def blank(self) -> str:
        """What stands for a guess in a text: [MASK], or the token in its place."""
        return self._tokenizer.id_to_token(self._special.mask) or ""

    def parse(self, row: Row) -> Parsed:
        """Checks and encodes a row.

        Raises:
          ValueError: it has no text, or is longer than the model's positions.
        """
        if not isinstance(row.get("text"), str):
            raise ValueError('an object with a string "text" is required')
        if not isinstance(row.get("text_b"), str | None):
            raise ValueError('"text_b" is not a string')
        texts = [row[x] for x in ("text", "text_b") if row.get(x) is not None]
        encoding = self._tokenizer.encode(*texts)
        if len(encoding.ids) > self._positions:
            raise ValueError(
                f"{len(encoding.ids)} tokens with [CLS] and [SEP]; the model has "
                f"{self._positions} positions: shorten the text"
            )
        return Parsed(encoding, self._masks(encoding), row.get("text_b") is not None)

    def _masks(self, encoding: Encoding) -> list[int]:
        return [i for i, id_ in enumerate(encoding.ids) if id_ == self._special.mask]

    def encode(self, parsed: Sequence[Parsed], size: BatchSize) -> PredictionBatches:
        """Its answers are `masks` and, for a pair, `is_next_probability`."""
        lengths = [len(row.encoding.ids) for row in parsed]
        groups = sorted_groups(lengths, size, self._positions)
        batches = [
            self._features([parsed[i] for i in group], tokens)
            for group, tokens in groups
        ]

        def answers(outputs: Sequence[Outputs]) -> list[Row]:
            results: list[Row] = [{} for _ in parsed]
            for (group, _), batch_outputs in zip(groups, outputs, strict=True):
                for place, index in enumerate(group):
                    results[index] = self._answer(parsed[index], batch_outputs, place)
            return results

        places = [[(int(index), 0) for index in group] for group, _ in groups]
        return PredictionBatches(batches, answers, places)

    def _answer(self, row: Parsed, outputs: Outputs, place: int) -> Row:
        count = len(row.masks)
        answer: Row = {"masks": self._guesses(outputs, place, count)}
        if row.is_pair and self._judges():
            answer["is_next_probability"] = float(outputs["is_next"][place])
        return answer

    def _judges(self) -> bool:
        if not self._judges_pairs and not self._warned:
            log.warning(
                "these weights were not trained on sentence pairs: answers are without "
                "is_next_probability"
            )
            self._warned = True
        return self._judges_pairs

    def _features(self, rows: Sequence[Parsed], length: int) -> dict[str, np.ndarray]:
        """Turns rows into arrays, padded to a length."""
        encodings = [row.encoding for row in rows]
        count = power_of_two(len(row.masks) for row in rows)
        places = np.zeros((len(rows), count), np.int32)
        for place, row in zip(places, rows, strict=True):
            place[: len(row.masks)] = row.masks
        arrays = padded(encodings, self._special.pad, length)
        return {**arrays, "masked_lm_positions": places}

    def step(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """The best pieces at each mask, and how likely the pair is consecutive.

        Returns:
          `ids` and `probabilities` [batch, masks, top_k]; `is_next` [batch], where
          pairs are judged.
        """
        outputs = self._outputs(params, batch)
        best = self._best(outputs["masked_lm_logits"])
        if self._judges_pairs:
            best["is_next"] = jax.nn.softmax(outputs["next_sentence_logits"])[:, 0]
        return best

    def _outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        outputs = self._model.apply(
            {"params": params},
            batch["input_ids"],
            batch["input_mask"],
            batch["segment_ids"],
            batch["masked_lm_positions"],
        )
        assert isinstance(outputs, dict)
        return outputs

    def _best(self, logits: Array, never: Array | None = None) -> dict[str, Array]:
        """The likeliest pieces, without those of the ids `never`."""
        # An embedding matrix may have more rows than the vocabulary has pieces.
        logits = logits[..., : self._tokenizer.get_vocab_size()]
        if never is not None:
            logits = logits.at[..., never].set(-np.inf)
        top_k = min(self._config.predict.top_k, logits.shape[-1])
        probabilities, ids = jax.lax.top_k(jax.nn.softmax(logits), top_k)
        return {"ids": ids, "probabilities": probabilities}

    def examples(
        self, batch: Batch, count: int
    ) -> tuple[dict[str, np.ndarray], list[list[str]]]:
        """A few rows of a batch with their masks, and the original pieces.

        Spreads the rows over the batch: neighbors come from the same document.
        """
        real = int(np.sum(batch["next_sentence_labels"] != records.PADDING_LABEL))
        rows = np.linspace(0, real - 1, min(count, real)).astype(int)
        names = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
        features = {name: batch[name][rows] for name in names}
        wanted = [
            [self._piece(piece) for piece in pieces[weights > 0]]
            for pieces, weights in zip(
                batch["masked_lm_ids"][rows],
                batch["masked_lm_weights"][rows],
                strict=True,
            )
        ]
        return features, wanted

    def show(
        self,
        features: Mapping[str, np.ndarray],
        wanted: list[list[str]],
        outputs: Mapping[str, np.ndarray],
    ) -> list[Row]:
        """Examples as rows: `text`, and for each mask `wanted` and `guesses`."""
        rows = []
        for index, pieces in enumerate(wanted):
            ids = features["input_ids"][index][features["input_mask"][index] == 1]
            # Skips predictions whose input piece was kept or replaced at random.
            kept = [
                {"wanted": piece, "guesses": guesses}
                for piece, position, guesses in zip(
                    pieces,
                    features["masked_lm_positions"][index],
                    self._guesses(outputs, index, len(pieces)),
                    strict=False,
                )
                if self._shows(features["input_ids"][index, position])
            ]
            text = self._text([int(piece) for piece in ids])
            rows.append({"text": text, "masks": kept})
        return rows

    def _shows(self, piece: int | np.integer) -> bool:
        return int(piece) == self._special.mask

    def _text(self, ids: list[int]) -> str:
        hidden = {self._special.cls, self._special.sep, self._special.pad}
        marked = {self._special.mask: f"{self._kind.before_word}{self.blank}"}
        kept = (i for i in ids if i not in hidden)
        name = self._tokenizer.id_to_token
        return self._kind.text(marked.get(i) or name(i) or "" for i in kept)

    def _guesses(
        self, outputs: Mapping[str, np.ndarray], index: int, count: int
    ) -> list[list]:
        return [
            [
                {
                    "token": self._piece(piece),
                    "id": int(piece),
                    "probability": float(probability),
                }
                for piece, probability in zip(ids, probabilities, strict=True)
            ]
            for ids, probabilities in zip(
                outputs["ids"][index, :count],
                outputs["probabilities"][index, :count],
                strict=True,
            )
        ]

    def _piece(self, piece_id: int | np.integer) -> str:
        return self._kind.shown(self._tokenizer.id_to_token(int(piece_id)) or "")


def printed(rows: Sequence[Row], width: int, blank: str = "[MASK]") -> str:
    """Rows of `FillMask.show` for a terminal: each blank's number, piece and guesses.

    A star marks the right guess. Cuts a row after PRINTED blanks.

    Args:
      blank: `FillMask.blank`.
    """
    lines = []
    for row in rows:
        # Left to right there is no blank in the text, but one after it.
        text, masks = row["text"], row["masks"][:PRINTED]
        text = text if blank in text or not masks else f"{text} {blank}"
        for number, _ in enumerate(masks, start=1):
            text = text.replace(blank, f"[{number}]", 1)
        head, cut, _ = text.partition(blank)
        text = head + ("..." if cut else "")
        lines += ["", *(f"  {line}" for line in textwrap.wrap(text, width - 2))]
        for number, mask in enumerate(masks, start=1):
            line = f"{f'[{number}]':>6} {mask['wanted']:<14}"
            for guess in mask["guesses"]:
                right = "*" if guess["token"] == mask["wanted"] else ""
                shown = f"  {right}{guess['token']} {guess['probability']:.0%}"
                if len(line + shown) > width:
                    break  # later ones that fit would look like the next best
                line += shown
            lines.append(line)
    return printable("\n".join(lines))
