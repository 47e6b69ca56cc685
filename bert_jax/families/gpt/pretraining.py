"""GPT's pre-training: its rows, its config, and prediction of the next token."""

from collections.abc import Collection
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.data.rows import Batch, Feature, text_feature
from bert_jax.data.table import Table
from bert_jax.data.tables import Row
from bert_jax.families.gpt import vocabulary as byte_pairs
from bert_jax.family import require_values
from bert_jax.models.config import encoder_flops
from bert_jax.tasks.fill_mask import Blanks, Continue, FillMask
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.task import Shapes, require_text
from bert_jax.types import Arrays


class GptPretraining(Pretraining):
    """Pre-training on running text."""

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        _check(config)
        super().__init__(config, tokenizer)

    def flops(self, shapes: Shapes) -> int:
        batch, length = shapes["input_ids"]
        sizes = self.model_config
        scores = 3 * 2 * (length - 1) * sizes.hidden_size * sizes.vocab_size
        return batch * (encoder_flops(sizes, length) + scores)

    def predictor(self, missing: Collection[str] = ()) -> FillMask:
        """Returns the predictor for `--mode=predict`."""
        del missing
        return GptContinue(self.config, self.model, self.tokenizer, has_nsp_head=False)


def fill(
    pairs: Table, length: int, special: tokenization.SpecialIds
) -> tuple[Batch, Bool[np.ndarray, "rows length"]]:
    """Makes rows as `loader.assemble_rows`: the text alone, without special tokens."""
    mask = np.arange(length) < pairs["tokens"].sizes()[:, None]
    ids = np.full(mask.shape, special.pad, np.int32)
    ids[mask] = pairs["tokens"].values
    whole = mask.astype(np.int32)
    segments = np.zeros_like(whole)
    batch = {"input_ids": ids, "input_mask": whole, "segment_ids": segments}
    return batch, mask


def _check(config: ConfigDict) -> None:
    """Raises UserError if GPT cannot be pre-trained so."""
    require_values(
        config,
        "a GPT",
        ("task.objective", "ltr", "predicts each piece from those before it"),
        ("corpus.nsp", False, "reads running text, not sentence pairs"),
        ("corpus.packing", False, "reads running text, which fills the rows"),
        hint=", as configs/gpt.py does",
    )


class GptContinue(Continue):
    """`{"text": ...}` -> the same with `next`: the guesses for the token after it.

    The text is read alone, as in pre-training: without `_start_`, which with the other
    special tokens is never a guess.
    """

    def __init__(self, config: ConfigDict, model: Any, tokenizer: Tokenizer, **fields):
        plain = Tokenizer.from_str(tokenizer.to_str())
        plain.encode_special_tokens = True
        super().__init__(config, model, plain, **fields)
        self._never = jnp.array(
            [plain.token_to_id(token) for token in byte_pairs.SPECIAL_TOKENS]
        )

    def parse_row(self, row: Row) -> Feature:
        """Checks and encodes a row.

        Raises:
          ValueError: It has no text, or a second one, or is longer than the model's
            positions.
        """
        text = require_text(row, "text")
        if row.get("text_b") is not None:
            raise ValueError('"text_b": a GPT continues one text')
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        length = len(encoding.ids)
        if not 0 < length <= self.max_seq_length:
            raise ValueError(
                f"{length} tokens; at least 1, and at most the model's "
                f"{self.max_seq_length} positions"
            )
        return text_feature(encoding, Blanks([length - 1], False))

    def outputs(self, params: Any, batch: Arrays) -> dict[str, Array]:
        """Returns the best tokens after each position.

        Returns:
          `ids` and `probabilities` [batch, positions, top_k].
        """
        return self._rank_tokens(self._logits(params, batch)["lm_logits"], self._never)

    def _text(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)
