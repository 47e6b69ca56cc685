"""What a prepared folder holds, told at the end of `--mode=prepare` and on a page.

Everything is read from the folder: preparation.json, token_counts.npy and the records.
"""

import io
import json
import random
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.data import record_source, records
from bert_jax.errors import UserError, printable
from bert_jax.runtime import storage

EXAMPLES = 10
BINS = 8  # of the lengths
_ROWS = 20_000  # at most: reading every row of a large corpus would take hours
_WIDTH = 44  # characters of a sentence in the text


class Example(NamedTuple):
    """A sentence pair as the model sees it, before masking."""

    text_a: str
    text_b: str  # empty where there are no pairs
    is_random_next: bool


class Contents(NamedTuple):
    """What the report tells."""

    report: dict[str, Any]  # preparation.json
    special: int  # special tokens of a text: 2, or a GPT's none
    unknown: float  # share of [UNK] among train's tokens
    lengths: Int[np.ndarray, " rows"]  # tokens of train's rows, special ones too
    examples: list[Example]  # of train, drawn at random

    @property
    def limit(self) -> int:
        """Tokens of the longest row that could be."""
        # Where rows have no special tokens, the length of pairs that have two.
        return int(self.report["settings"]["max_seq_length"]) - 2 + self.special


def contents(folder: storage.Path) -> Contents:
    """Reads a prepared folder; of many rows 20,000, evenly spaced.

    Raises:
      UserError: it cannot be read.
    """
    try:
        report = json.loads((folder / "preparation.json").read_bytes())
        file = io.BytesIO((folder / "token_counts.npy").read_bytes())
        counts = np.lib.format.read_array(file)
        tokenizer = tokenization.load(folder / "tokenizer.json")
        source = record_source.Source(folder, "train")
        step = -(-len(source) // _ROWS)
        special = tokenization.kind_of(tokenizer).around
        starts = range(0, len(source), step << 12)
        lengths = [_lengths(source, i, step) + special for i in starts]
        chosen = random.Random(0).sample(range(len(source)), min(EXAMPLES, len(source)))
        rows = [source.read([row]) for row in sorted(chosen)]
        if counts.shape != (tokenizer.get_vocab_size(),):
            raise ValueError("token_counts.npy is of another vocabulary")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder}: cannot be read ({error}); delete this folder to prepare the "
            "data again"
        ) from error
    unknown = counts[tokenization.special_ids(tokenizer).unk] / max(1, counts.sum())
    examples = [_example(tokenizer, row) for row in rows]
    return Contents(report, special, float(unknown), np.concatenate(lengths), examples)


def histogram(contents: Contents) -> list[tuple[int, int, float]]:
    """Bins of lengths: the first and the last length of each, and its share."""
    edges = np.unique(np.linspace(0, contents.limit, BINS + 1).round().astype(int))
    counts = np.histogram(contents.lengths, edges + 0.5)[0]
    shares = counts / max(1, len(contents.lengths))
    return [
        (int(low) + 1, int(high), float(share))
        for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True)
    ]


def text(folder: storage.Path) -> str:
    """The report, in at most 25 lines; `cleaned.clean` has told of the clean-up."""
    prepared = contents(folder)
    totals = prepared.report["totals"]
    lines = []
    for split, its in totals.items():
        share = records.random_share(its)
        lines.append(
            f"{split}: {its['documents']:,} documents, {its['sentences']:,} sentences, "
            f"{its['tokens']:,} tokens, {its['pairs']:,} pairs"
            + f" ({share:.1%} random)"
            * bool(share)
        )
    left = totals["dev"]["left_out"]
    lines[-1] += f"; {left:,} sentences were left out because train has them"
    bins = (f"{low}-{high} {share:.0%}" for low, high, share in histogram(prepared))
    lines.append(f"tokens a pair: {', '.join(bins)}")
    lines.append(f"[UNK]: {prepared.unknown:.3%} of train's tokens")
    lines.append("pairs of train, drawn at random:")
    for one in prepared.examples:
        kind = "random" if one.is_random_next else "next"
        second = f" | {_cut(one.text_b)}" if one.text_b else ""
        lines.append(f"  {kind if second else '':6} {_cut(one.text_a)}{second}")
    return "\n".join(lines)


def _cut(text: str) -> str:
    return printable(text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}...")


def _lengths(
    source: record_source.Source, first: int, step: int
) -> Int[np.ndarray, " rows"]:
    """Of every `step`-th row, 4,096 of them; without a text's two special tokens."""
    pairs = source.read(range(first, min(len(source), first + (step << 12)), step))
    return pairs.lengths.sum(axis=1) + (pairs.lengths[:, 1] > 0)


def _example(tokenizer: Tokenizer, pairs: records.Pairs) -> Example:
    parts = np.split(pairs.tokens, [int(pairs.lengths[0, 0])])
    kind = tokenization.kind_of(tokenizer)
    one, other = (
        kind.text(tokenizer.id_to_token(int(token)) or "" for token in part)
        for part in parts
    )
    return Example(one, other, bool(pairs.is_random_next[0]))
