"""Texts as the model's sequences: [CLS] a [SEP] or [CLS] a [SEP] b [SEP]."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Int
from ml_collections import ConfigDict
from tokenizers import Encoding, Tokenizer

from bert_jax import tokenization
from bert_jax.data import truncation

# Characters tokenized together, or else one text: the tokenizer's objects take a
# hundred times the memory of a text.
_CHARACTERS = 2_000_000


class Sequences:
    """A vocabulary and the rules by which a task's texts become sequences.

    Attributes:
      tokenizer: The vocabulary.
      max_seq_length: Maximum number of tokens in a sequence.
      special: Ids of the special tokens.
      last: Id of the token at a sequence's end.
      causal: Whether the model's tokens attend to none after them.
      orders: Number of sequences that `sequence` makes of a text or pair.
      notices: Counts of texts that were cut, see `Task.notices`.
    """

    orders = 1

    def __init__(
        self,
        options: ConfigDict,
        tokenizer: Tokenizer,
        notices: Counter[str],
        *,
        causal: bool = False,
    ):
        """Stores its arguments.

        Args:
          options: `Task.options`, with the maximum length and the rule to cut by.
        """
        self.tokenizer, self.notices, self.causal = tokenizer, notices, causal
        self.max_seq_length = options.max_seq_length
        self._cut = options.truncation
        self._kind = tokenization.kind_of(tokenizer)
        self.special = tokenization.special_ids(tokenizer)
        self.last = self.special.last

    def tokenize(
        self, texts: Sequence[str], *, offsets: bool = True
    ) -> Iterator[Encoding]:
        """Yields each text's tokens, without [CLS] and [SEP].

        "[SEP]" inside a text is three ordinary tokens, as in Google's tokenizer.

        Args:
          offsets: Whether the tokens' offsets must be right. False means that they may
            be wrong, which saves a fifth of the time.
        """
        tokenizer = self.tokenizer
        encode = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast
        ends = np.cumsum([len(text) for text in texts]) // _CHARACTERS
        for _, group in itertools.groupby(range(len(texts)), key=ends.__getitem__):
            tokenizer.encode_special_tokens = True
            yield from encode([texts[i] for i in group], add_special_tokens=False)

    def sequence(
        self, a: list[int], b: list[int] | None, split: str
    ) -> dict[str, Int[np.ndarray, "*orders length"]]:
        """Returns `input_ids` and `segment_ids` of [CLS] a [SEP] or, for a pair,
        [CLS] a [SEP] b [SEP], cut to `config.task.max_seq_length`.

        The second part's segment is 1 (run_classifier.py, convert_single_example).
        """
        between = () if b is None else self.special.between
        room = self.max_seq_length - 2 - len(between)
        if len(a) + len(b or ()) > room:
            self.notices[f"{split}: texts longer than max_seq_length, cut"] += 1
            if b is None:
                a = truncation.truncate_tokens(a, room, self._cut)
            else:
                first, second = truncation.pair_lengths(
                    len(a), len(b), room, self._kind.odd_to_longer
                )
                a, b = a[:first], b[:second]
        ids = [self.special.cls, *a, *between, *(b or ()), self.last]
        # The token that ends the first text is part of it.
        segments = (np.arange(len(ids)) > len(a) + 1).astype(np.int32)
        return {"input_ids": np.array(ids, np.int32), "segment_ids": segments}

    def group(
        self, sequences: Sequence[Mapping[str, np.ndarray]], rows: int
    ) -> dict[str, Int[np.ndarray, "rows length"]]:
        """Returns the columns of a feature of several sequences, padded to the longest
        one and to `rows`."""
        length = max(len(each["input_ids"]) for each in sequences)
        ids = np.full((rows, length), self.special.pad, np.int32)
        mask, segments = np.zeros((2, rows, length), np.int32)
        for row, each in enumerate(sequences):
            size = len(each["input_ids"])
            ids[row, :size], mask[row, :size] = each["input_ids"], 1
            segments[row, :size] = each["segment_ids"]
        return {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
