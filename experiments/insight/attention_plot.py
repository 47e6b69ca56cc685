"""A picture of one head's attention, for a paper.

    python -m experiments.insight.attention_plot --input=who.safetensors --row=0 \
        --layer=1 --head=3 --output=who.png

The input is what `--mode=predict --config.predict.attentions=who` wrote; row, part
(of a row in several windows, or with several choices), layer and head count from 0. The
picture is a heat map in grey, each line one token and what it looks at, with the
numbers in percent where there is room. The output's ending says its format: .png, .pdf
or .svg. Needs matplotlib: pip install -e '.[report]'.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open

from bert_jax.errors import UserError
from bert_jax.runtime import untrusted
from bert_jax.runtime.storage import output, write_atomically
from experiments.lib import command_line, ending, plots

FORMATS = ("png", "pdf", "svg")
INCHES = 0.22  # of a token's side; a number of two digits fits into it
NUMBERS = 24  # the most tokens for which numbers are printed
TOKEN = 24  # characters of a token that are printed
DPI = 200
PIXELS = 6000  # of a side, at most: those of 512 tokens at DPI would take 13 GB


class Head(NamedTuple):
    """What one head of a layer does with a row."""

    tokens: list[str]
    probabilities: Float[np.ndarray, "from to"]


@ending.command
def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = command_line.Parser("experiments.insight.attention_plot", __doc__)
    parser.add_argument("--input", required=True, type=Path, help="NAME.safetensors")
    parser.add_argument("--row", type=int, default=0, help="of the input; default 0")
    parser.add_argument("--part", type=int, default=0, help="of the row; default 0")
    parser.add_argument("--layer", type=int, required=True)
    parser.add_argument("--head", type=int, required=True)
    parser.add_argument("--output", required=True, type=Path)
    options = parser.parse_args(argv)
    kind = options.output.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise UserError(
            f"--output={options.output}: must end in one of "
            f"{', '.join('.' + name for name in FORMATS)}"
        )
    command_line.require("matplotlib", "report", "the picture needs matplotlib")
    output(str(options.output))
    head = read(options)
    title = f"layer {options.layer}, head {options.head}"
    write_atomically(options.output, picture(head, title, kind))
    return 0


def read(options: argparse.Namespace) -> Head:
    """One head of a row, read without the rest of the file.

    Raises:
      UserError: not such a file, or it has no such row, layer or head.
    """
    place, row, part = options.input, options.row, options.part
    name = f"attentions_{row}_{part}" if part else f"attentions_{row}"
    try:
        with safe_open(place, "numpy") as file:
            about = file.metadata() or {}
            names = [key for key in about if key.startswith("attentions_")]
            if name not in names:
                names.sort(key=lambda name: [int(n) for n in name.split("_")[1:]])
                few = ", ".join(names[:5]) + ", ..." * (len(names) > 5)
                raise UserError(
                    f"{place}: has no {name}, --row={row} --part={part}"
                    + (f"; it has {few}" if names else "; predict wrote none")
                )
            found = file.get_slice(name)
            if (dtype := found.get_dtype()) not in ("F16", "F32", "F64"):
                raise ValueError(f"{name} has numbers of the type {dtype}")
            for flag, count in zip(
                ("layer", "head"), found.get_shape()[:2], strict=True
            ):
                if not 0 <= getattr(options, flag) < count:
                    raise UserError(
                        f"--{flag}={getattr(options, flag)}: {place} has {count}, from "
                        f"0 to {count - 1}"
                    )
            layer, head = options.layer, options.head
            part_read = found[layer : layer + 1, head : head + 1]
            tokens = untrusted.parse(about[name], f"--input={place}, {name}")["tokens"]
            if part_read.shape[2:] != (len(tokens), len(tokens)):
                raise ValueError(f"{len(tokens)} tokens for {part_read.shape}")
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"--input={place}: not a safetensors file of "
            f"--config.predict.attentions ({reason})"
        ) from error
    return Head(tokens, part_read[0, 0].astype(np.float32))


def picture(head: Head, title: str, kind: str) -> bytes:
    """A heat map from white (0) to black (1).

    Args:
      kind: one of FORMATS.
    """
    count = len(head.tokens)
    side = max(2.0, count * INCHES)
    with plots.drawn(1, side + 1.1, side + 1.5) as (figure, (axes,)):
        _draw(axes, head)
        axes.set_title(title)
    return plots.save(figure, kind, min(DPI, PIXELS / (side + 1.5)))


def _draw(axes: Any, head: Head) -> None:
    axes.imshow(head.probabilities, cmap="Greys", vmin=0, vmax=1)
    count = len(head.tokens)
    # A dollar sign would begin a formula.
    names = [token[:TOKEN].replace("$", r"\$") for token in head.tokens]
    axes.set_xticks(range(count), names, rotation=90, fontsize=8)
    axes.set_yticks(range(count), names, fontsize=8)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("at this token")
    axes.set_ylabel("this token looks")
    if count <= NUMBERS:
        for (row, column), value in np.ndenumerate(head.probabilities):
            if value >= 0.005:
                axes.text(
                    *(column, row, f"{100 * value:.0f}"),
                    ha="center",
                    va="center",
                    fontsize=6,
                    color="white" if value > 0.5 else "black",
                )


if __name__ == "__main__":
    ending.start(main)
