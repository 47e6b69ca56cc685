"""Pictures by layer; told apart by shape, so that grey is enough."""

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from bert_jax.runtime import terminal

_DPI = 150
_MARKS = ("o", "^", "s", "D", "v", "P", "X")
_FILLS = ("black", "white", "0.65")


class Line(NamedTuple):
    """A value for each layer, with half the width of its interval."""

    label: str
    values: Sequence[float]
    reaches: Sequence[float]


def senses(
    panels: Mapping[str, Float[np.ndarray, "sentences size"]], labels: Sequence[str]
) -> bytes:
    """Each sentence a mark in the plane of the two largest components; as PNG."""
    figure, axes = _figure(len(panels), 3.0, 3.3)
    names = list(dict.fromkeys(labels))
    for panel, (title, vectors) in zip(axes, panels.items(), strict=True):
        points = principal(vectors)
        for index, name in enumerate(names):
            chosen = points[[label == name for label in labels]]
            panel.plot(
                *chosen.T,
                _MARKS[index % len(_MARKS)],
                color="black",
                markerfacecolor=_FILLS[index % len(_FILLS)],
                markersize=6,
                label=name.replace("$", r"\$"),
            )
        panel.set_title(title, fontsize=10)
        panel.set_xticks([])
        panel.set_yticks([])
    handles, texts = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, texts, loc="outside lower center", ncols=len(names), frameon=False
    )
    return _png(figure)


def principal(
    vectors: Float[np.ndarray, "sentences size"],
) -> Float[np.ndarray, "sentences 2"]:
    """The two largest principal components; zeros where there are none."""
    centred = np.asarray(vectors, np.float64)
    centred = centred - centred.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    found = np.zeros((len(centred), 2))
    count = min(2, len(sizes))
    found[:, :count] = left[:, :count] * sizes[:count]
    return found


def layers(
    panels: Mapping[str, tuple[Sequence[Line], Mapping[str, float]]],
) -> bytes:
    """Lines over the layers with error bars, baselines as dotted lines; as PNG."""
    figure, axes = _figure(len(panels), 4.2, 3.6)
    for panel, (title, (lines, baselines)) in zip(axes, panels.items(), strict=True):
        for index, line in enumerate(lines):
            reaches = [x if math.isfinite(x) else 0.0 for x in line.reaches]
            panel.errorbar(
                range(len(line.values)),
                line.values,
                yerr=reaches,
                label=line.label,
                marker=_MARKS[index],
                color="black",
                markerfacecolor=_FILLS[index],
                linestyle=("-", "--", "-.")[index],
                linewidth=1,
                capsize=3,
            )
        for index, (name, value) in enumerate(baselines.items()):
            style = (":", (0, (1, 3)))[index]
            panel.axhline(value, color="0.4", linestyle=style, label=name)
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("layer (0: the embeddings)")
        panel.set_xticks(range(len(lines[0].values)))
        panel.grid(axis="y", color="0.9")
        panel.legend(frameon=False, fontsize=8, bbox_to_anchor=(0, -0.2), loc=2)
    axes[0].set_ylabel("accuracy")
    return _png(figure)


def _figure(panels: int, width: float, height: float) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.4 + width * panels, height), layout="constrained")
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        figure.savefig(buffer, format="png", dpi=_DPI)
    if any("Glyph" in str(told.message) for told in found):
        terminal.say("the plot's font lacks characters of some names")
    return buffer.getvalue()
