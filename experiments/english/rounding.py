"""How far two copies of a model are apart: what rounding its weights costs.

    python -m experiments.english.rounding --models=MODEL,ROUNDED --texts=FILE.txt

Masks a word in each line of the file, and compares the logits of all pieces there.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

import bert_jax
from bert_jax import tokenization
from bert_jax.data.lines import read_lines
from bert_jax.errors import UserError
from experiments.lib import command_line, ending

_LENGTH = 64  # pieces of a line that are read


@ending.printed
def main(argv: Sequence[str]) -> str:
    """Compares them; gives a line or two.

    Raises:
      UserError: two models are not given, or have other vocabularies; no text.
    """
    parser = command_line.Parser("experiments.english.rounding", __doc__)
    parser.add_argument("--models", required=True, help="two, between a comma")
    parser.add_argument("--texts", required=True, type=Path, help="one a line")
    options = parser.parse_args(argv)
    names = options.models.split(",")
    if len(names) != 2:
        raise UserError(f"--models={options.models}: two are required")
    one, other = map(bert_jax.load, names)
    if one.tokenizer.get_vocab() != other.tokenizer.get_vocab():
        raise UserError(f"--models={options.models}: their vocabularies differ")
    special = tokenization.special_ids(one.tokenizer)
    rows = []
    for _, line in read_lines(options.texts):
        row = one.tokenizer.encode(line).ids[:_LENGTH]
        if len(row) > 2:
            row[len(row) // 2] = special.mask
            rows.append(row)
    if not rows:
        raise UserError(f"{options.texts}: has no text")
    size = (len(rows), max(map(len, rows)))
    ids = np.full(size, special.pad, np.int32)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
    mask = (ids != special.pad).astype(np.int32)
    gap = ids == special.mask
    logits = [
        jax.device_get(model.apply(ids, mask, 0 * ids)["masked_lm_logits"])[gap]
        for model in (one, other)
    ]
    difference = float(np.abs(logits[0] - logits[1]).max())
    spread = float(np.abs(logits[0]).max())
    same = np.mean(logits[0].argmax(-1) == logits[1].argmax(-1))
    return (
        f"largest difference of a logit: {difference:.4g}\n"
        f"largest logit: {spread:.4g}; the same first guess in {same:.1%} of "
        f"{gap.sum():,} gaps"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
