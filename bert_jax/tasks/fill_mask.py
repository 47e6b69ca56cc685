"""Prediction with a pre-training model: rows in, guesses for each [MASK] out."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Array, Int
from ml_collections import ConfigDict
from tokenizers import Encoding, Tokenizer

from bert_jax import tokenization
from bert_jax.data.rows import Batch, Feature, Rows, power_of_two, text_feature
from bert_jax.data.tables import Row
from bert_jax.errors import escape_controls
from bert_jax.tasks.task import Outputs, Predictor, require_text
from bert_jax.types import Arrays

PRINTED = 10  # blanks of a sentence in the closing report


class Blanks(NamedTuple):
    """The requested predictions of a sequence: its `Feature.info`."""

    masks: list[int]  # positions of [MASK]
    is_pair: bool  # whether it has two texts


class FillMask(Predictor):
    """Predictor of masked tokens: `{"text": "... [MASK] ...", "text_b": optional}` ->
    the same with `masks`."""

    def __init__(
        self,
        config: ConfigDict,
        model: nn.Module,
        tokenizer: Tokenizer,
        *,
        has_nsp_head: bool = True,
    ):
        """Stores its arguments.

        Args:
          has_nsp_head: Whether the weights were trained to predict whether the second
            text follows the first. If not, `is_next_probability` is omitted.
        """
        self._has_nsp_head = has_nsp_head
        self._config = config
        self._model = model
        self._tokenizer = tokenizer
        self._special = tokenization.special_ids(tokenizer)
        self._kind = tokenization.kind_of(tokenizer)
        self.max_seq_length = model.config.max_position_embeddings

    @property
    def row_fields(self) -> tuple[str, ...]:
        return ("text", "text_b") if self._has_nsp_head else ("text",)

    @property
    def blank(self) -> str:
        """The text that marks a guess: [MASK], or its equivalent."""
        return self._tokenizer.id_to_token(self._special.mask) or ""

    def parse_row(self, row: Row) -> Feature:
        """Checks and encodes a row.

        Raises:
          ValueError: it has no text, or is longer than the model's positions.
        """
        require_text(row, "text")
        if not isinstance(row.get("text_b"), str | None):
            raise ValueError('"text_b" is not a string')
        texts = tuple(row[x] for x in ("text", "text_b") if row.get(x) is not None)
        # `encode` would stop the other threads until it is done.
        (encoding,) = self._tokenizer.encode_batch([texts if texts[1:] else texts[0]])
        if len(encoding.ids) > self.max_seq_length:
            raise ValueError(
                f"{len(encoding.ids)} tokens with [CLS] and [SEP]; the model has "
                f"{self.max_seq_length} positions: shorten the text"
            )
        blanks = Blanks(self._masks(encoding), row.get("text_b") is not None)
        return text_feature(encoding, blanks)

    def _masks(self, encoding: Encoding) -> list[int]:
        return [i for i, id_ in enumerate(encoding.ids) if id_ == self._special.mask]

    def make_rows(self, features: Sequence[Feature]) -> Rows:
        """Returns rows whose batches also have `masked_lm_positions`."""
        return _RowsWithBlanks(features, {"input_ids": self._special.pad})

    def decode_one(self, feature: Feature, output: Outputs) -> Row:
        """Returns `masks` and, for a pair, `is_next_probability`."""
        blanks: Blanks = feature.info
        answer: Row = {"masks": self._guesses(output, len(blanks.masks))}
        if blanks.is_pair and self._has_nsp_head:
            answer["is_next_probability"] = float(output["is_next"])
        return answer

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """Returns the best tokens at each mask, and how likely the pair is consecutive.

        Returns:
          `ids` and `probabilities` [batch, masks, top_k], and `is_next` [batch], where
          pairs are classified.
        """
        logits = self._logits(params, batch)
        best = self._rank_tokens(logits["masked_lm_logits"])
        if self._has_nsp_head:
            best["is_next"] = jax.nn.softmax(logits["next_sentence_logits"])[:, 0]
        return best

    def _logits(self, params: Any, batch: Arrays) -> dict[str, Array]:
        outputs = self._model.apply(
            {"params": params},
            batch["input_ids"],
            batch["input_mask"],
            batch["segment_ids"],
            batch["masked_lm_positions"],
        )
        assert isinstance(outputs, dict)
        return outputs

    def _rank_tokens(
        self, logits: Array, never: Array | None = None
    ) -> dict[str, Array]:
        """Returns the likeliest tokens, without those of the ids `never`."""
        # An embedding matrix may have more rows than the vocabulary has tokens.
        logits = logits[..., : self._tokenizer.get_vocab_size()]
        if never is not None:
            logits = logits.at[..., never].set(-np.inf)
        top_k = min(self._config.predict.top_k, logits.shape[-1])
        probabilities, ids = jax.lax.top_k(jax.nn.softmax(logits), top_k)
        return {"ids": ids, "probabilities": probabilities}

    def held_out(self, batch: Batch, count: int) -> list[tuple[Feature, list[str]]]:
        """Returns a few rows of a batch as `parse_row` does, with the tokens to guess.

        Spreads the rows over the batch: neighbors come from the same document.
        """
        lengths = batch["input_mask"].sum(axis=1)
        real = np.flatnonzero(lengths)
        rows = real[np.linspace(0, len(real) - 1, min(count, len(real))).astype(int)]
        return [self._held_out(batch, row, int(lengths[row])) for row in rows.tolist()]

    def _held_out(
        self, batch: Batch, row: int, length: int
    ) -> tuple[Feature, list[str]]:
        names = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
        targets = zip(*(batch[name][row] for name in names), strict=True)
        # Skip predictions whose input token was kept or replaced at random.
        wanted = {
            int(position): self._token(piece)
            for position, piece, weight in targets
            if weight and batch["input_ids"][row, position] == self._special.mask
        }
        columns = {n: batch[n][row, :length] for n in ("input_ids", "segment_ids")}
        return Feature(0, columns, Blanks([*wanted], False)), [*wanted.values()]

    def show(self, feature: Feature, wanted: Sequence[str], answer: Row) -> Row:
        """Returns a row of `held_out`: `text`, and `wanted` and `guesses` of each
        mask."""
        guesses = answer["masks"] if "masks" in answer else [answer["next"]]
        pairs = zip(wanted, guesses, strict=True)
        return {
            "text": self._text(feature.columns["input_ids"].tolist()),
            "masks": [{"wanted": token, "guesses": each} for token, each in pairs],
        }

    def _text(self, ids: list[int]) -> str:
        hidden = {self._special.cls, self._special.sep, self._special.pad}
        marked = {self._special.mask: f"{self._kind.before_word}{self.blank}"}
        kept = (i for i in ids if i not in hidden)
        name = self._tokenizer.id_to_token
        return self._kind.text(marked.get(i) or name(i) or "" for i in kept)

    def _guesses(self, outputs: Outputs, count: int) -> list[list[Row]]:
        both = (outputs[name][:count].tolist() for name in ("ids", "probabilities"))
        return [
            [
                {"token": self._token(id_), "id": id_, "probability": share}
                for id_, share in zip(ids, shares, strict=True)
            ]
            for ids, shares in zip(*both, strict=True)
        ]

    def _token(self, piece_id: int | np.integer) -> str:
        return self._kind.format_token(self._tokenizer.id_to_token(int(piece_id)) or "")


class _RowsWithBlanks(Rows):
    def __init__(self, features: Sequence[Feature], fill: Mapping[str, int]):
        super().__init__(features, fill)
        self._masks = [feature.info.masks for feature in features]

    def batch(self, indices: Int[np.ndarray, "batch"], length: int) -> Batch:
        """Returns `Rows.batch`, and the blanks' positions, [batch, a power of two]."""
        masks = [self._masks[index] for index in indices]
        places = np.zeros((len(masks), power_of_two(map(len, masks))), np.int32)
        for place, row in zip(places, masks, strict=True):
            place[: len(row)] = row
        return {**super().batch(indices, length), "masked_lm_positions": places}


class Continue(FillMask):
    """Left to right: `{"text": ...}` -> the same with `next`, the guesses for the token
    after it (section 5.1)."""

    blank = "[MASK]"  # after the text

    def _masks(self, encoding: Encoding) -> list[int]:
        """Returns the text's last token, which does not see the [SEP] after it."""
        return [len(encoding.ids) - 2]

    def decode_one(self, feature: Feature, output: Outputs) -> Row:
        """Returns `next`."""
        return {"next": self._guesses(output, 1)[0]}

    def _held_out(
        self, batch: Batch, row: int, length: int
    ) -> tuple[Feature, list[str]]:
        """Cuts the row in its middle."""
        end = max(1, length // 2)
        columns = {n: batch[n][row, :end] for n in ("input_ids", "segment_ids")}
        wanted = self._token(batch["input_ids"][row, end])
        return Feature(0, columns, Blanks([end - 1], False)), [wanted]


def format_guesses(rows: Sequence[Row]) -> str:
    """Formats rows of `FillMask.show` for a terminal: a text, then for each of its
    first PRINTED blanks the token and the guesses."""
    lines = []
    for row in rows:
        lines += ["", row["text"]]
        for number, mask in enumerate(row["masks"][:PRINTED], start=1):
            shown = (f"{x['token']} {x['probability']:.0%}" for x in mask["guesses"])
            lines.append(f"{number:>4} {mask['wanted']:<14} {'  '.join(shown)}")
    return escape_controls("\n".join(lines))
