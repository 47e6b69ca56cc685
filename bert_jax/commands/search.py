"""Finds the texts nearest to a query, by their vectors, and draws a map of all.

    python -m bert_jax search --model=runs/vectors --texts=notes.csv \
        --query="how do I resume a run?" --top=3
    python -m bert_jax search --model=runs/vectors --texts=docs --map=map.png

MODEL is a run of configs/finetune/embeddings.py, or what else `bert_jax.load` opens.
TEXTS is a file of rows with a `text` (.csv, .tsv, .jsonl, .parquet), a .txt with a text
in each line, a .md with one in each paragraph, or a folder of .txt and .md files with
one in each paragraph. Their vectors are computed once, also for several queries, which
are the lines of standard input where there is no --query. An answer has the cosine, the
location of the text, and its first 100 characters. READER is a run of pairs
(configs/finetune/text.py with task.text_b), which reads the nearest texts beside the
query. Its score is then shown, and decides the order (docs/search.md).
"""

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from bert_jax import pretrained, search
from bert_jax.commands import command_line, plots
from bert_jax.data.lines import decode_lines, read_lines, uncompressed_name
from bert_jax.data.tables import ColumnSpec, read_table, require_string
from bert_jax.errors import UserError, escape_controls
from bert_jax.main import set_up_logging
from bert_jax.runtime import environment
from bert_jax.runtime.storage import write_atomically
from bert_jax.scores.retrieval import unit_vectors

ENDINGS = (".txt", ".md")  # of the files in a folder
PICTURES = (".png", ".pdf", ".svg")

Vectors = Float[np.ndarray, "texts size"]


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    parser = command_line.Parser("bert_jax search", __doc__)
    parser.add_argument("--model", required=True, help="a run, or weights")
    parser.add_argument("--texts", required=True, help="a file or a folder")
    parser.add_argument("--query", help="default: each line of standard input")
    parser.add_argument("--top", default=10, type=int, help="texts to print")
    parser.add_argument("--reader", default="", help="a model of pairs, to reorder by")
    parser.add_argument("--read", default=50, type=int, help="texts that it reads")
    parser.add_argument(
        "--map", default="", help="a picture to write, .png, .pdf, .svg"
    )
    options = parser.parse_args(argv)
    command_line.check_counts(options, "top", "read")
    if options.map:
        if not options.map.endswith(PICTURES):
            raise UserError(f"--map={options.map}: must end in {', '.join(PICTURES)}")
        command_line.require("matplotlib", "report", "--map needs matplotlib")
    named = [*read_texts(options.texts)]
    if not named:
        raise UserError(f"--texts={options.texts}: has no text; name another")
    set_up_logging()
    environment.keep_programs()
    model = pretrained.load(options.model)
    reader = pretrained.load(options.reader) if options.reader else None
    texts = [text for _, text in named]
    vectors = model.sentences(texts)
    if options.map:
        files = [where.rpartition(":")[0] for where, _ in named]
        picture = plots.save(
            draw(project(unit_vectors(vectors)), files), Path(options.map).suffix[1:]
        )
        write_atomically(Path(options.map), picture)
    queries: Iterable[str] = () if options.query is None else (options.query,)
    if options.query is None and not options.map:
        lines = decode_lines(sys.stdin.buffer, "standard input")
        queries = (line for _, line in lines if line.strip())
    for query in queries:
        if options.query is None:
            print(escape_controls(query))
        asked, top = model.sentences([query]), options.top
        found = search.top_k(asked, vectors, top if reader is None else options.read)
        if reader is not None:
            near = [texts[index] for index in found.indices[0]]
            order = search.rerank(query, near, reader)
            found = search.Found(order.scores, found.indices[:, order.indices[0]])
        for score, index in zip(found.scores[0][:top], found.indices[0], strict=False):
            where, text = named[index]
            print(escape_controls(f"{score:.3f}  {where}: {text:.100}"))
        sys.stdout.flush()
    return 0


def read_texts(source: str) -> Iterator[tuple[str, str]]:
    """Yields the location of each text, and the text, except empty ones.

    Raises:
      UserError: A file cannot be read, or a row has no `text`.
    """
    place = Path(source)
    if place.is_dir() or place.suffix == ".md":
        paths = [*place.rglob("*")] if place.is_dir() else [place]
        for path in sorted(x for x in paths if x.suffix in ENDINGS):
            lines = read_lines(path, may_be_empty=True)
            for is_text, block in itertools.groupby(
                lines, lambda x: bool(x[1].strip())
            ):
                if is_text:
                    (number, first), *others = block
                    words = " ".join([first, *(line for _, line in others)]).split()
                    yield f"{path}:{number}", " ".join(words)
    elif uncompressed_name(source).endswith(".txt"):
        for number, line in read_lines(source):
            if line.strip():
                yield f"{source}:{number}", line
    else:
        for where, row in read_table(source, ColumnSpec(("text",), alone=True)):
            if text := require_string(row["text"], where, "text").strip():
                yield where, text


def project(vectors: Vectors) -> Float[np.ndarray, "texts 2"]:
    """Projects vectors onto their two principal components."""
    centered = vectors - vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(centered, full_matrices=False)
    return centered @ axes[:2].T


def draw(points: Float[np.ndarray, "texts 2"], files: Sequence[str]) -> Any:
    """Draws each text as a point, in its file's color."""
    import matplotlib

    colors = matplotlib.colormaps["tab20"]
    with plots.drawn(1, width=8.6, height=7) as (figure, (axes,)):
        for number, file in enumerate(dict.fromkeys(files)):
            in_file = points[[name == file for name in files]]
            axes.scatter(*in_file.T, s=12, color=colors(number % 20), label=file)
        axes.set(xticks=[], yticks=[], title="Texts: two principal components")
        figure.legend(loc="outside right upper", fontsize=7)
    return figure
