"""Searches a folder of texts by meaning, and draws which texts are near each other.

    python examples/search_texts.py runs/vectors texts "how do I resume a run?"
    python examples/search_texts.py runs/vectors texts --map=map.png

`runs/vectors` is a run of configs/finetune/embeddings.py, or any folder that
`bert_jax.load` reads. `texts` has .txt or .md files. Each paragraph is a text.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

import bert_jax

ENDINGS = (".txt", ".md")

Vectors = Float[np.ndarray, "texts size"]


def paragraphs(folder: Path) -> list[tuple[str, str]]:
    """Returns each file's name and each of its paragraphs, in one line."""
    files = sorted(p for p in folder.rglob("*") if p.suffix in ENDINGS)
    return [
        (str(path.relative_to(folder)), " ".join(text.split()))
        for path in files
        for text in path.read_text(encoding="utf-8").split("\n\n")
        if text.strip()
    ]


def search(vectors: Vectors, query: Vectors, count: int) -> list[tuple[float, int]]:
    """Returns the cosine and the index of the texts nearest to a query."""
    unit, asked = (
        x / np.linalg.norm(x, axis=1, keepdims=True).clip(1e-12)
        for x in (vectors, query)
    )
    cosines = unit @ asked[0]
    return [(float(cosines[i]), int(i)) for i in np.argsort(-cosines)[:count]]


def plane(vectors: Vectors) -> Float[np.ndarray, "texts 2"]:
    """Projects vectors onto their two principal components."""
    centered = vectors - vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(centered, full_matrices=False)
    return centered @ axes[:2].T


def draw(points: Float[np.ndarray, "texts 2"], names: Sequence[str], to: str) -> None:
    """Draws each text as a point, in its file's color."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 7), layout="constrained")
    colors = pyplot.get_cmap("tab20")
    for index, name in enumerate(dict.fromkeys(names)):
        own = points[[each == name for each in names]]
        axes.scatter(own[:, 0], own[:, 1], s=12, color=colors(index % 20), label=name)
    axes.set(xticks=[], yticks=[], title="Texts by meaning: two principal components")
    figure.legend(loc="outside right upper", fontsize=7)
    figure.savefig(to, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description="searches a folder of texts")
    parser.add_argument("model")
    parser.add_argument("texts", type=Path)
    parser.add_argument("query", nargs="?")
    parser.add_argument("--count", type=int, default=5, help="texts to print")
    parser.add_argument("--map", help="a picture to write, .png or .svg")
    args = parser.parse_args()
    found = paragraphs(args.texts)
    if not found:
        parser.error(f"{args.texts}: has no {' or '.join(ENDINGS)} files with text")
    model = bert_jax.load(args.model)
    names, texts = zip(*found, strict=True)
    vectors = model.sentences(texts)
    if args.query:
        query = model.sentences([args.query])
        for cosine, index in search(vectors, query, args.count):
            print(f"{cosine:.3f}  {names[index]}: {texts[index]:.100}")
    if args.map:
        draw(plane(vectors), names, args.map)


if __name__ == "__main__":
    main()
