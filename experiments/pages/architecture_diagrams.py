"""Draws BERT, GPT and ELMo from the shapes that their code gives (figure 3).

    python -m experiments.pages.architecture_diagrams [--output=docs/images]

writes bert.svg, gpt.svg and elmo.svg: what each place of a text reads in each layer,
and the parameters of each part, both asked of the models of the released sizes. The
shapes are those of `jax.eval_shape`; the arrows are found by changing a token and
looking which outputs change, in models of the same kind with three tokens and two
layers.
"""

import dataclasses
import functools
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bert_jax.config import configuration
from bert_jax.family import FAMILIES
from bert_jax.models.config import BertConfig
from bert_jax.models.encoder import Encoded
from bert_jax.models.heads import count_parameters
from bert_jax.runtime.storage import write_atomically
from experiments.lib import command_line, ending
from experiments.lib.running import ROOT
from families.elmo.config import ElmoConfig
from families.elmo.model import Elmo

NAMES = ("bert", "gpt", "elmo")
TOKENS = 3
_CONFIGS = {"bert": "base.py", "gpt": "gpt.py", "elmo": "elmo.py"}
_TITLES = {
    "bert": "BERT-Base: both sides jointly, in every layer",
    "gpt": "GPT: left to right",
    "elmo": "ELMo: left to right and right to left, concatenated at the end",
}
# Pixels: of a node, between its columns and its rows, and of the text at the right.
_NODE, _ACROSS, _UP, _TEXT = (64, 26), 96, 74, 490

Arrows = tuple[tuple[int, int], ...]  # from one place to another


class Part(NamedTuple):
    """A row of the diagram.

    Attributes:
      level: 0 for the vectors of the input, which all sides read.
      arrows: from the row below; None: straight.
      side: 0, or 1 for what reads from the right; -1: both sides, joined.
    """

    level: int
    node: str
    said: str
    arrows: Arrows | None = None
    side: int = 0

    def reads(self, other: "Part") -> bool:
        sides = self.side < 0 or other.level == 0 or other.side == self.side
        return other.level == self.level - 1 and sides


def sizes(name: str) -> BertConfig | ElmoConfig:
    """Those of the released model."""
    config = configuration.load(str(ROOT / "configs" / _CONFIGS[name]), [])
    if name == "elmo":
        return ElmoConfig.of_run(config)
    return BertConfig.create(config.model, config.tokenizer.vocab_size)


@functools.cache
def shapes(name: str) -> dict[str, Any]:
    """The parameters' shapes, without heads; nothing is computed."""
    size, key = sizes(name), jax.random.key(0)
    if isinstance(size, ElmoConfig):
        ids = jnp.zeros((1, TOKENS, size.max_characters), jnp.int32)
        found = jax.eval_shape(Elmo(size).init, key, ids, ids)
    else:
        ids = jnp.zeros((1, TOKENS), jnp.int32)
        found = jax.eval_shape(
            FAMILIES[size.architecture].trunk(size).init, key, ids, ids, ids
        )
    return nn.meta.unbox(found["params"])


@functools.cache
def reads(name: str) -> list[Arrows]:
    """For the input's vectors and each layer the places of the text that each place
    depends on; of ELMo's second direction after those of the first.

    Asked of a small model: a token is changed, and the outputs compared.
    """
    outputs = jax.jit(lambda ids: _small(sizes(name), ids))
    text = np.arange(1, TOKENS + 1)
    first = outputs(text)
    found: list[set[tuple[int, int]]] = [set() for _ in first]
    for place in range(TOKENS):
        other = text + TOKENS * (np.arange(TOKENS) == place)
        for arrows, one, two in zip(found, first, outputs(other), strict=True):
            changed = np.abs(np.asarray(one - two)).max(-1) > 0
            arrows |= {(place, int(to)) for to in np.flatnonzero(changed)}
    return [tuple(sorted(arrows)) for arrows in found]


def _small(size: BertConfig | ElmoConfig, ids: Array) -> list[Array]:
    """The layers' outputs [places, numbers] of a model of this kind, with random
    parameters."""
    few: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 16}
    key = jax.random.key(1)
    if isinstance(size, ElmoConfig):
        elmo = Elmo(dataclasses.replace(size, **few, filters=((1, 8),)))
        words = jnp.zeros((1, TOKENS, size.max_characters), jnp.int32)
        words = words.at[0, :, 0].set(ids)
        layers, _ = elmo.apply(elmo.init(key, words, words), words, words[:, ::-1])
        return [x[0, 0] for x in layers] + [x[1, 0, ::-1] for x in layers]
    few |= {"num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 9}
    small = dataclasses.replace(size, **few)
    model = FAMILIES[small.architecture].trunk(small)
    row, ones = ids[None], jnp.ones((1, TOKENS), jnp.int32)
    found = model.apply(model.init(key, row, ones, ones), row, ones, ones)
    assert isinstance(found, Encoded)
    return [x[0] for x in found.hidden_states]


def parts(name: str) -> list[Part]:
    """The rows of a diagram."""
    size, params, arrows = sizes(name), shapes(name), reads(name)
    if isinstance(size, ElmoConfig):
        return _of_elmo(size, params, arrows)
    tables = params["embeddings"]
    rows = ", ".join(
        f"{what} {tables[key]['embedding'].shape[0]:,}"
        for key, what in (
            ("word_embeddings", "pieces"),
            ("position_embeddings", "positions"),
            ("token_type_embeddings", "segments"),
        )
        if key in tables
    )
    layer = params["encoder"]["layer_0"]
    each = f"{count_parameters(layer):,} parameters"
    heads = f"attention of {size.num_attention_heads} heads"
    count, inner = size.num_hidden_layers, f"{size.intermediate_size:,} inside"
    vectors = f"vectors of {size.hidden_size}: {rows}"
    found = [
        Part(0, "E", f"{vectors}; {count_parameters(tables):,} parameters"),
        Part(1, "Trm", f"layer 1: {heads}, {inner}; {each}", arrows[1]),
        Part(2, "Trm", f"... layer {count}: the same", arrows[1]),
    ]
    if "pooler" in params:
        pooler = count_parameters(params["pooler"])
        found.append(Part(3, "T", f"pooler, on the first: {pooler:,} parameters"))
    return found


def _of_elmo(
    size: ElmoConfig, params: dict[str, Any], arrows: Sequence[Arrows]
) -> list[Part]:
    filters = f"{size.convolved:,} convolutions over {size.max_characters} characters"
    cell = f"{size.intermediate_size:,} -> {size.hidden_size}"
    vectors = f"vectors of {size.hidden_size}: {filters}"
    count = count_parameters(params["cnn"])
    half, found = len(arrows) // 2, [Part(0, "E", f"{vectors}; {count:,} parameters")]
    for side, what in enumerate(("left to right", "right to left")):
        for i in range(size.num_hidden_layers):
            each = count_parameters(params[f"lstm_{i}"]) // 2
            said = f"layer {i + 1}, {what}: LSTM {cell}; {each:,} parameters"
            found.append(Part(i + 1, "Lstm", said, arrows[side * half + i + 1], side))
    joined = f"both directions side by side: {2 * size.hidden_size:,} numbers a layer"
    return [*found, Part(size.num_hidden_layers + 1, "T", joined, side=-1)]


def svg(name: str) -> str:
    """The diagram."""
    rows, total = parts(name), count_parameters(shapes(name))
    sides = 1 + max(part.side for part in rows)
    width = sides * TOKENS * _ACROSS + 40 + _TEXT
    height = 60 + (1 + max(part.level for part in rows)) * _UP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        '<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="24" font-weight="bold">{escape(_TITLES[name])}; '
        f"{total:,} parameters</text>",
    ]
    for part in rows:
        lines += _row(rows, part, height)
        at = height - 40 - part.level * _UP + 5 + 18 * (part.side == 1)
        text = sides * TOKENS * _ACROSS + 30
        lines.append(f'<text x="{text}" y="{at}">{escape(part.said)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _row(rows: Sequence[Part], part: Part, height: int) -> list[str]:
    """A row's nodes, and the arrows to them."""
    lines = []
    wide, tall = _NODE
    middle = max(row.side for row in rows) * TOKENS * _ACROSS / 2.0
    y: float = height - 40 - part.level * _UP
    for place in range(TOKENS):
        x = _x(part, place, middle)
        lines.append(
            f'<rect x="{x - wide / 2:g}" y="{y - tall / 2:g}" width="{wide}" '
            f'height="{tall}" rx="8" fill="#eee" stroke="black"/>'
            f'<text x="{x:g}" y="{y + 4:g}" text-anchor="middle">{part.node}'
            f"{place + 1 if part.node in 'ET' else ''}</text>"
        )
    straight = tuple((i, i) for i in range(TOKENS))
    for below in filter(part.reads, rows):
        # A place that depends on another through a place between: no own arrow.
        for one, to in part.arrows if part.arrows is not None else straight:
            if part.node == "Lstm" and one != to:
                continue
            start, end = y + _UP - tall / 2, y + tall / 2
            lines.append(
                _arrow(_x(below, one, middle), start, _x(part, to, middle), end)
            )
    if part.node == "Lstm":
        step = 1 if part.arrows and (0, TOKENS - 1) in part.arrows else -1
        for place in range(TOKENS):
            if 0 <= place + step < TOKENS:
                start = _x(part, place, middle) + step * wide / 2
                end = _x(part, place + step, middle) - step * wide / 2
                lines.append(_arrow(start, y, end, y))
    return lines


def _x(part: Part, place: int, middle: float) -> float:
    """A node's middle; what both directions share stands between them."""
    across = 12 + _NODE[0] / 2 + 10 + place * _ACROSS
    if part.node == "Lstm":
        return across + part.side * TOKENS * _ACROSS
    return across + middle


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="black" '
        'stroke-width="0.9" marker-end="url(#to)"/>'
    )


@ending.printed
def main(argv: Sequence[str]) -> str:
    """Writes the files; says which."""
    parser = command_line.Parser("experiments.pages.architecture_diagrams", __doc__)
    parser.add_argument("--output", default="docs/images", type=Path, help="folder")
    given = parser.parse_args(argv)
    paths = [given.output / f"{name}.svg" for name in NAMES]
    for path in paths:
        write_atomically(path, svg(path.stem))
    return "\n".join(f"written: {path}" for path in paths)


if __name__ == "__main__":
    ending.start(main)
