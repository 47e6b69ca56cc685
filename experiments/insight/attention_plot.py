"""A picture of attention: one head, or all heads of a layer.

    python -m experiments.insight.attention_plot --weights=runs/tiny \
        --text="A text." --layer=1 [--head=3] --output=who.png

The weights are what `bert_jax.load` opens. Layer and head count from 0. Each head is a
heat map in gray: each line is a token and its attention to the others, for a single
head with the numbers in percent where there is room. The output is .png, .pdf or .svg.
Needs matplotlib: pip install -e '.[report]'.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

import bert_jax
from bert_jax.commands import command_line, plots
from bert_jax.errors import UserError
from bert_jax.runtime.storage import output_path, write_atomically

FORMATS = ("png", "pdf", "svg")
INCHES = 0.22  # side of a token. A number of two digits fits into it
NUMBERS = 24  # the most tokens for which numbers are printed
TOKEN = 24  # characters of a token that are printed
DPI = 200
Heads: TypeAlias = Float[np.ndarray, "from to"]
PIXELS = 6000  # the most pixels of a side: those of 512 tokens at DPI would take 13 GB


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    options = parse(argv)
    kind = options.output.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        endings = ", ".join(f".{name}" for name in FORMATS)
        raise UserError(f"--output={options.output}: must end in one of {endings}")
    command_line.require("matplotlib", "report", "the picture needs matplotlib")
    output_path(str(options.output))
    write_atomically(options.output, picture(*read(options), kind))
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Reads the arguments."""
    parser = command_line.Parser("experiments.insight.attention_plot", __doc__)
    parser.add_argument("--weights", required=True, help="a run or another folder")
    parser.add_argument("--text", required=True)
    parser.add_argument("--text_b", help="a second text")
    parser.add_argument("--layer", type=int, required=True)
    parser.add_argument("--head", type=int, help="default: all")
    parser.add_argument("--output", required=True, type=Path)
    return parser.parse_args(argv)


def read(options: argparse.Namespace) -> tuple[list[str], dict[str, Heads]]:
    """Computes the tokens of the text, and the heads of a layer by name.

    Raises:
      UserError: There are no such weights, or no such layer or head.
    """
    model = bert_jax.load(options.weights)
    second = None if options.text_b is None else [options.text_b]
    read = model.encode([options.text], second)
    given = read["input_ids"], read["input_mask"], read["segment_ids"]
    layers = model.apply(*given, attentions=True)["attentions"]
    heads = layers[0].shape[1]
    wanted = range(heads) if options.head is None else (options.head,)
    both = (("layer", options.layer, len(layers)), ("head", wanted[0], heads))
    for flag, value, count in both:
        if not 0 <= value < count:
            raise UserError(f"--{flag}={value}: the model has {count}, from 0")
    values, title = np.asarray(layers[options.layer][0]), f"layer {options.layer}"
    found = {f"{title}, head {head}": values[head] for head in wanted}
    return read["tokens"][0], found


def picture(tokens: list[str], heads: Mapping[str, Heads], kind: str) -> bytes:
    """Draws heat maps from white (0) to black (1).

    Args:
      kind: Name from FORMATS.
    """
    side = max(2.0, len(tokens) * INCHES)
    width, height = side + 1.1, side + 1.5
    with plots.drawn(len(heads), width, height) as (figure, panels):
        for axes, (title, values) in zip(panels, heads.items(), strict=True):
            _draw(axes, tokens, values, with_numbers=len(heads) == 1)
            axes.set_title(title)
    return plots.save(figure, kind, min(DPI, PIXELS / max(width * len(heads), height)))


def _draw(
    axes: Any, tokens: list[str], values: np.ndarray, *, with_numbers: bool
) -> None:
    axes.imshow(values, cmap="Greys", vmin=0, vmax=1)
    # A dollar sign would begin a formula.
    names = [token[:TOKEN].replace("$", r"\$") for token in tokens]
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set(xlabel="to this token", ylabel="from this token")
    if not with_numbers or len(names) > NUMBERS:
        return
    for (row, column), value in np.ndenumerate(values):
        if value >= 0.005:
            axes.text(
                *(column, row, f"{100 * value:.0f}"),
                ha="center",
                va="center",
                fontsize=6,
                color="white" if value > 0.5 else "black",
            )


if __name__ == "__main__":
    command_line.start(main)
