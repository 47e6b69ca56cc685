"""The fraction of [UNK] among the tokens of texts: whether a vocabulary fits them."""

import logging
from collections.abc import Callable

import numpy as np
from jaxtyping import Int
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.data.rows import Batch, Rows

log = logging.getLogger(__name__)

MANY_UNKNOWN = 0.02  # about 0.0001 for bert-base-uncased in English
WARNING = (
    "that is a lot; check that the vocabulary and its case fit the texts and the "
    "weights"
)
_MIN_TOKENS = 200  # no warning for fewer


def unknown_share(ids: Int[np.ndarray, " tokens"], tokenizer: Tokenizer) -> float:
    """Returns the fraction of [UNK], or of the token in its role, among some tokens."""
    unknown = tokenizer.token_to_id(tokenization.kind_of(tokenizer).unknown or "")
    return 0.0 if unknown is None else float(np.mean(ids == unknown))


def of_rows(rows: Rows, tokenizer: Tokenizer) -> float:
    """Returns the fraction of [UNK] in at most 1,000 rows, at even distances."""
    sample = np.linspace(0, len(rows) - 1, min(len(rows), 1000)).astype(int)
    return unknown_share(np.concatenate([*map(np.ravel, rows.ids(sample))]), tokenizer)


def warner(tokenizer: Tokenizer, where: str) -> Callable[[Batch], None]:
    """Returns a function of batches that warns, once, of many [UNK] in the first."""
    ids = np.zeros(0, int)

    def look(batch: Batch) -> None:
        nonlocal ids
        if len(ids) >= _MIN_TOKENS:
            return
        ids = np.concatenate([ids, batch["input_ids"][batch["input_mask"] > 0]])
        share = unknown_share(ids, tokenizer)
        if len(ids) >= _MIN_TOKENS and share > MANY_UNKNOWN:
            text = "warning: %s: %.2f%% [UNK] in the first rows; %s"
            log.warning(text, where, 100 * share, WARNING)

    return look
