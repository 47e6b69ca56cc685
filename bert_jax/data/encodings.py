"""Texts as arrays, with each token's position in its text."""

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from jaxtyping import Int32
from tokenizers import Encoding, Tokenizer

from bert_jax.data.rows import Feature, Rows
from bert_jax.errors import UserError


class Columns(TypedDict):
    """Texts, or pairs of texts, as a model takes them, and their tokens.

    Offsets are a token's characters, [start, end), in the text as it was given, and
    words are counted from 0. In a pair's second text both begin again. [CLS], [SEP]
    and padding have (0, 0) and -1. `tokens` has no padding, and no white space next to
    a token that takes it up, such as RoBERTa's `<mask>`.
    """

    input_ids: Int32[np.ndarray, "texts length"]
    input_mask: Int32[np.ndarray, "texts length"]  # 1 for a token, 0 for padding
    segment_ids: Int32[np.ndarray, "texts length"]  # 1 for a pair's second text
    offsets: Int32[np.ndarray, "texts length 2"]
    word_ids: Int32[np.ndarray, "texts length"]
    tokens: list[list[str]]


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    texts_b: Sequence[str] | None,
    limit: int,
) -> list[Encoding]:
    """Encodes texts, or pairs of texts, with [CLS] and [SEP].

    Args:
      limit: Number of the model's positions.

    Raises:
      TypeError: one text instead of a list.
      ValueError: no texts, or not as many second ones.
      UserError: a text has more tokens than `limit`.
    """
    if isinstance(texts, str) or isinstance(texts_b, str):
        raise TypeError("a list of texts is required, not one text")
    if not texts:
        raise ValueError("no texts")
    if texts_b is not None and len(texts_b) != len(texts):
        raise ValueError(f"{len(texts)} texts, but {len(texts_b)} second ones")
    pairs = texts if texts_b is None else list(zip(texts, texts_b, strict=True))
    tokenized = tokenizer.encode_batch(pairs)
    for index, encoding in enumerate(tokenized):
        if len(encoding.ids) > limit:
            raise UserError(
                f"text {index}: {len(encoding.ids)} tokens with [CLS] and [SEP]; "
                f"the model has {limit} positions"
            )
    return tokenized


def batch_columns(encodings: Sequence[Encoding], pad: int) -> Columns:
    """Returns all of the texts together, as long as the longest.

    Args:
      pad: Id of [PAD].
    """
    length = max(len(encoding.ids) for encoding in encodings)
    offsets = np.zeros((len(encodings), length, 2), np.int32)
    words = np.full((len(encodings), length), -1, np.int32)
    for row, encoding in enumerate(encodings):
        end = len(encoding.ids)
        offsets[row, :end] = encoding.offsets
        words[row, :end] = [-1 if word is None else word for word in encoding.word_ids]
    table = Rows([*map(text_feature, encodings)], {"input_ids": pad})
    arrays = table.batch(np.arange(len(encodings)), length)
    tokens = [[token.strip() or token for token in x.tokens] for x in encodings]
    return Columns(
        input_ids=arrays["input_ids"],
        input_mask=arrays["input_mask"],
        segment_ids=arrays["segment_ids"],
        offsets=offsets,
        word_ids=words,
        tokens=tokens,
    )


def text_feature(encoding: Encoding, info: Any = None) -> Feature:
    """Returns a text as a sequence for a model."""
    columns = {"input_ids": encoding.ids, "segment_ids": encoding.type_ids}
    arrays = {name: np.array(ids, np.int32) for name, ids in columns.items()}
    return Feature(0, arrays, info)
