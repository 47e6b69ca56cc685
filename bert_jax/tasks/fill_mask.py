"""Prediction with a pre-training model: rows in, guesses for each [MASK] out."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array
from ml_collections import ConfigDict
from tokenizers import Encoding, Tokenizer

from bert_jax import tokenization
from bert_jax.data import loader, records
from bert_jax.data.rows import padded, power_of_two
from bert_jax.models.heads import BertForPreTraining
from bert_jax.tasks.task import Ask, Predictor

log = logging.getLogger(__name__)

Row = dict[str, Any]


class FillMask(Predictor):
    """`{"text": "... [MASK] ...", "text_b": optional}` -> the same with `masks`."""

    def __init__(
        self,
        config: ConfigDict,
        model: BertForPreTraining,
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
        self._positions = model.config.max_position_embeddings

    def parse(self, row: Row) -> Row:
        """Checks a row.

        Raises:
          ValueError: it has no text, or is longer than the model's positions.
        """
        if not isinstance(row.get("text"), str):
            raise ValueError('an object with a string "text" is required')
        if not isinstance(row.get("text_b"), str | None):
            raise ValueError('"text_b" is not a string')
        length = len(self._encode(row).ids)
        if length > self._positions:
            raise ValueError(
                f"{length} tokens with [CLS] and [SEP]; the model has "
                f"{self._positions} positions: shorten the text"
            )
        return row

    def answer(self, parsed: Sequence[Row], ask: Ask, size: int) -> list[Row]:
        """`masks` and, for a pair, `is_next_probability`, for up to `size` rows."""
        del size
        outputs = ask(self.features(parsed))
        results = []
        for index, row in enumerate(parsed):
            count = len(self._masks(self._encode(row)))
            result: Row = {"masks": self._guesses(outputs, index)[:count]}
            if row.get("text_b") is not None and self._judges():
                result["is_next_probability"] = float(outputs["is_next"][index])
            results.append(result)
        return results

    def _judges(self) -> bool:
        if not self._judges_pairs and not self._warned:
            log.warning(
                "these weights were not trained on sentence pairs: answers are without "
                "is_next_probability"
            )
            self._warned = True
        return self._judges_pairs

    def features(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """Turns rows into arrays, padded as in `data.rows.padded`."""
        encodings = [self._encode(row) for row in rows]
        masks = [self._masks(encoding) for encoding in encodings]
        ids, mask, segments = padded(encodings, self._special.pad, self._positions)
        count = power_of_two(map(len, masks))
        places = np.zeros((len(rows), count), np.int32)
        for row, found in enumerate(masks):
            places[row, : len(found)] = found
        return {
            "input_ids": ids,
            "input_mask": mask,
            "segment_ids": segments,
            "masked_lm_positions": places,
        }

    def step(self, params: Any, batch: Mapping[str, Array]) -> dict[str, Array]:
        """The best pieces at each mask, and how likely the pair is consecutive.

        Returns:
          `ids` and `probabilities` [batch, masks, top_k], `is_next` [batch].
        """
        outputs = self._model.apply(
            {"params": params},
            batch["input_ids"],
            batch["input_mask"],
            batch["segment_ids"],
            batch["masked_lm_positions"],
        )
        assert isinstance(outputs, dict)
        # An embedding matrix may have more rows than the vocabulary has pieces.
        logits = outputs["masked_lm_logits"][..., : self._tokenizer.get_vocab_size()]
        top_k = min(self._config.predict.top_k, logits.shape[-1])
        probabilities, ids = jax.lax.top_k(jax.nn.softmax(logits), top_k)
        is_next = jax.nn.softmax(outputs["next_sentence_logits"])[:, 0]
        return {"ids": ids, "probabilities": probabilities, "is_next": is_next}

    def examples(
        self, batch: loader.Batch, count: int
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
                    self._guesses(outputs, index),
                    strict=False,
                )
                if features["input_ids"][index, position] == self._special.mask
            ]
            text = self._text([int(piece) for piece in ids])
            rows.append({"text": text, "masks": kept})
        return rows

    def _text(self, ids: list[int]) -> str:
        hidden = {self._special.cls, self._special.sep, self._special.pad}
        pieces = [self._piece(i) for i in ids if i not in hidden]
        return " ".join(pieces).replace(" ##", "")

    def _guesses(self, outputs: Mapping[str, np.ndarray], index: int) -> list[list]:
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
                outputs["ids"][index], outputs["probabilities"][index], strict=True
            )
        ]

    def _piece(self, piece_id: int | np.integer) -> str:
        return self._tokenizer.id_to_token(int(piece_id)) or ""

    def _masks(self, encoding: Encoding) -> list[int]:
        return [
            i for i, piece in enumerate(encoding.ids) if piece == self._special.mask
        ]

    def _encode(self, row: Row) -> Encoding:
        return self._tokenizer.encode(row["text"], row.get("text_b"))
