"""A summary of a prepared folder: report.txt, also printed by --mode=prepare."""

import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer

from bert_jax import tokenization
from bert_jax.data import records
from bert_jax.errors import printable

if TYPE_CHECKING:
    from bert_jax.data.prepare import Prepared

EXAMPLES = 10
_WIDTH = 44  # characters of a sentence


def text(data: "Prepared") -> str:
    """Returns the sizes, the overlap, the mean length, the fraction of [UNK] and pairs.

    Raises:
      UserError: the records cannot be read.
    """
    source = records.Source(records.shards(data.folder, "train"))
    length = data.token_counts().sum() / max(1, len(source))
    chosen = random.Random(0).sample(range(len(source)), min(EXAMPLES, len(source)))
    lines = [
        *_sizes(data.report),
        f"a pair of train: {length:.1f} tokens, without special ones",
        f"[UNK]: {data.unknown_share():.3%} of train's tokens",
        "pairs of train, drawn at random:",
        *(_example(data.tokenizer, source.read([row])) for row in sorted(chosen)),
    ]
    return "\n".join(lines)


def _sizes(report: Mapping[str, Any]) -> Iterator[str]:
    for split, its in report["totals"].items():
        share = records.random_share(its)
        yield (
            f"{split}: {its['documents']:,} documents, {its['sentences']:,} sentences, "
            f"{its['tokens']:,} tokens, {its['pairs']:,} pairs"
            + f" ({share:.1%} random)"
            * bool(share)
        )
    yield from held_out(report["totals"])
    counts = (records.source_counts(report, name) for name in ("documents", "pairs"))
    for number, (documents, pairs) in enumerate(zip(*counts, strict=True), 1):
        yield f"source {number} of train: {documents:,} documents, {pairs:,} pairs"


def held_out(totals: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yields lines: the size of dev, and its overlap with the training text.

    Args:
      totals: Totals of each split, in preparation.json.
    """
    dev = totals["dev"]
    before = dev["sentences"] + dev["left_out"]
    share = dev["tokens"] / (dev["tokens"] + totals["train"]["tokens"])
    yield f"held out: {dev['sentences']:,} sentences ({share:.1%} of the tokens)"
    yield (
        f"not among them: {dev['left_out']:,} ({dev['left_out'] / before:.1%}) that "
        "the training text has too"
    )


def _example(tokenizer: Tokenizer, pairs: records.Pairs) -> str:
    kind = tokenization.kind_of(tokenizer)
    one, other = (
        kind.text(tokenizer.id_to_token(int(token)) or "" for token in part)
        for part in np.split(pairs.tokens, [int(pairs.lengths[0, 0])])
    )
    if not other:
        return f"  {_cut(one)}"
    label = "random" if pairs.is_random_next[0] else "next"
    return f"  {label:6} {_cut(one)} | {_cut(other)}"


def _cut(text: str) -> str:
    return printable(text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}...")
