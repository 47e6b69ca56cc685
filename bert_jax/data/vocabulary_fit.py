"""The fraction of [UNK] among the tokens of texts: whether a vocabulary fits them."""

import numpy as np
from jaxtyping import Int
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.data.rows import Rows

MANY_UNKNOWN = 0.02  # about 0.0001 for bert-base-uncased in English
WARNING = (
    "that is a lot; check that the vocabulary and its case fit the texts and the "
    "weights"
)


def unknown_share(ids: Int[np.ndarray, " tokens"], tokenizer: Tokenizer) -> float:
    """Returns the fraction of [UNK], or of the token in its role, among some tokens."""
    unknown = tokenizer.token_to_id(tokenization.kind_of(tokenizer).unknown or "")
    return 0.0 if unknown is None else float(np.mean(ids == unknown))


def of_rows(rows: Rows, tokenizer: Tokenizer) -> float:
    """Returns the fraction of [UNK] in at most 1,000 rows, at even distances."""
    sample = np.linspace(0, len(rows) - 1, min(len(rows), 1000)).astype(int)
    return unknown_share(np.concatenate([*map(np.ravel, rows.ids(sample))]), tokenizer)
