"""The share of [UNK] among the tokens of texts: whether a vocabulary fits them."""

import numpy as np
from jaxtyping import Int
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.data.rows import Batch, Rows

MANY_UNKNOWN = 0.02  # about 0.0001 for bert-base-uncased in English
WARNING = (
    "that is a lot; check that the vocabulary and its case fit the texts and the "
    "weights"
)
_LEAST_TOKENS = 200  # fewer are not judged
_SAMPLE = 1000  # rows


def unknown_share(ids: Int[np.ndarray, " tokens"], tokenizer: Tokenizer) -> float:
    """Returns the share of [UNK], or of the token in its place, among some tokens."""
    unknown = tokenizer.token_to_id(tokenization.kind_of(tokenizer).unknown or "")
    return 0.0 if unknown is None else float(np.mean(ids == unknown))


def of_rows(rows: Rows, tokenizer: Tokenizer) -> float:
    """Returns the share of [UNK] in at most 1,000 rows, at even distances."""
    count = len(rows)
    sample = np.linspace(0, count - 1, min(count, _SAMPLE)).astype(int)
    ids = [np.ravel(each) for each in rows.ids(sample)]
    return unknown_share(np.concatenate(ids), tokenizer)


class Watch:
    """Judges the first batches, once they have enough tokens."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._ids = np.zeros(0, int)
        self._judged = False

    def fault(self, batch: Batch, where: str) -> str:
        """Returns a line about texts with many [UNK], once; else an empty text."""
        if self._judged:
            return ""
        real = batch["input_ids"][batch["input_mask"] > 0]
        self._ids = np.concatenate([self._ids, real])
        self._judged = len(self._ids) >= _LEAST_TOKENS
        share = unknown_share(self._ids, self._tokenizer)
        if not self._judged or share <= MANY_UNKNOWN:
            return ""
        return f"{where}: {share:.2%} [UNK] in the first rows; {WARNING}"
