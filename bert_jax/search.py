"""Search, duplicates, hard negatives and reranking on the vectors of texts.

    import bert_jax
    from bert_jax import search

    model = bert_jax.load("FOLDER")
    vectors = model.sentences(answers)
    found = search.top_k(model.sentences(["how do I resume a run?"]), vectors, 5)

All scores are cosines. Search is exact, in blocks, so a million vectors need little
memory beside their own (docs/search.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bert_jax.data import tables
from bert_jax.errors import UserError
from bert_jax.scores.retrieval import unit_vectors

Vectors = Float[np.ndarray, "texts size"]

# Rows of a block of cosines, and its columns: 64 MiB of float32.
_QUERIES, _TEXTS = 1024, 16_384


class Found(NamedTuple):
    """The nearest texts of each query, the nearest first."""

    scores: Float[np.ndarray, "queries k"]
    indices: Int[np.ndarray, "queries k"]


class Pair(NamedTuple):
    """Two texts, by their numbers, and their cosine."""

    first: int
    second: int
    score: float


def top_k(
    queries: Float[np.ndarray, "queries size"], vectors: Vectors, k: int = 10
) -> Found:
    """Finds the texts nearest to each query. Of equal ones the first comes first.

    Args:
      vectors: An array, which may be mapped from a file (`numpy.load(mmap_mode="r")`).
      k: Number of texts to find, or all if there are fewer.

    Raises:
      ValueError: `k` is less than 1, or vectors and queries have other sizes.
    """
    if k < 1:
        raise ValueError(f"k={k}: must be at least 1")
    k = min(k, len(vectors))
    found = [
        _nearest(_unit(queries[start : start + _QUERIES]), vectors, k)
        for start in range(0, len(queries), _QUERIES)
    ]
    none = Found(np.empty((0, k), np.float32), np.empty((0, k), np.int64))
    return Found(*(np.concatenate(x) for x in zip(none, *found, strict=True)))


def _nearest(
    asked: Float[np.ndarray, "queries size"], vectors: Vectors, k: int
) -> Found:
    """Returns the result of `top_k` for a block of queries of length 1."""
    rows = len(asked)
    scores = np.full((rows, k), -np.inf, np.float32)
    indices = np.zeros((rows, k), np.int64)
    for first, cosines in _blocks(asked, vectors):
        # Of equal scores an earlier one stays, as blocks come in order.
        wanted = cosines > scores[:, -1:]
        if first == 0 and cosines.shape[1] > k:
            wanted = cosines >= -np.partition(-cosines, k - 1, axis=1)[:, k - 1 : k]
        row, column = np.nonzero(wanted)
        counts = np.bincount(row, minlength=rows)
        place = k + np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        more = ((0, 0), (0, int(counts.max(initial=0))))
        scores = np.pad(scores, more, constant_values=-np.inf)
        indices = np.pad(indices, more)
        scores[row, place], indices[row, place] = cosines[wanted], first + column
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(scores, best, axis=1)
        indices = np.take_along_axis(indices, best, axis=1)
    return Found(scores, indices)


def find_duplicates(vectors: Vectors, least: float = 0.9) -> list[Pair]:
    """Returns all pairs of texts with at least this cosine, but for rounding, the most
    alike first."""
    least -= 1e-6  # the cosine of equal texts may be 0.9999999
    pairs: list[Pair] = []
    for start in range(0, len(vectors), _QUERIES):
        asked = _unit(vectors[start : start + _QUERIES])
        for first, cosines in _blocks(asked, vectors, start):
            near = zip(*np.nonzero(cosines >= least), strict=True)
            pairs += [
                Pair(start + int(i), first + int(j), float(cosines[i, j]))
                for i, j in near
                if start + i < first + j
            ]
    return sorted(pairs, key=lambda pair: (-pair.score, pair[:2]))


def mine_negatives(
    pairs: Any,
    model: Any,
    count: int = 1,
    *,
    skip: int = 0,
    margin: float = 0.05,
    candidates: int = 100,
    prompts: tuple[str | None, str | None] = (None, None),
) -> list[dict[str, str]]:
    """Returns rows `text`, `positive`, `negative` to train vectors on: each pair with
    other texts' partners that are near its text.

    No negative is a partner of the text in any pair, nor the text itself. A pair that
    has no candidate gets no row.

    Args:
      pairs: Rows with `text` and `text_b`, or a frame with these columns.
      model: A `Bert`, or an object with its `sentences`.
      count: Negatives of a pair, each in a row of its own, the nearest first.
      skip: Number of nearest texts to leave out, which may be partners that nobody has
        labelled. Texts above the margin count too.
      margin: Least share by which a negative's cosine is below the pair's own (Moreira
        et al. 2024, arXiv:2407.15831).
      candidates: Number of nearest texts to choose from.
      prompts: Those of the texts and of their partners, see `Bert.sentences`.

    Raises:
      ValueError: A row has no `text` or no `text_b`.
    """
    rows = tables.python_rows(pairs)
    for number, row in enumerate(rows):
        for name in ("text", "text_b"):
            if not isinstance(row.get(name), str):
                raise ValueError(f"row {number}: no {name!r} that is a text")
    texts, partners = (
        {text: place for place, text in enumerate(dict.fromkeys(r[name] for r in rows))}
        for name in ("text", "text_b")
    )
    left_out = {text: {partners.get(text, -1)} for text in texts}
    for row in rows:
        left_out[row["text"]].add(partners[row["text_b"]])
    queries, vectors = (
        _unit(model.sentences([*some], prompt=prompt))
        for some, prompt in zip((texts, partners), prompts, strict=True)
    )
    near, named = top_k(queries, vectors, candidates), [*partners]
    found = []
    for row in rows:
        place = texts[row["text"]]
        cosine = queries[place] @ vectors[partners[row["text_b"]]]
        most = cosine - margin * abs(cosine)
        scored = zip(near.indices[place].tolist(), near.scores[place], strict=True)
        others = [(i, x) for i, x in scored if i not in left_out[row["text"]]][skip:]
        chosen = [named[i] for i, score in others if score <= most][:count]
        positive = {"text": row["text"], "positive": row["text_b"]}
        found += [{**positive, "negative": negative} for negative in chosen]
    return found


def judged_rows(triples: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Returns rows `text`, `text_b`, `label` to train a cross-encoder on: 1 for each
    positive of `mine_negatives`, 0 for its negatives."""
    labels = {
        (row["text"], row[name]): label
        for name, label in (("negative", 0), ("positive", 1))
        for row in triples
    }
    return [{"text": a, "text_b": b, "label": x} for (a, b), x in labels.items()]


def rerank(query: str, texts: Sequence[str], model: Any) -> Found:
    """Orders texts by a cross-encoder, which reads each of them beside the query.

    Args:
      model: A `Bert` of pairs. Its number is the score, or the probability of the class
        `entailment`, if there is one, else of its last class.

    Returns:
      The scores and the texts' numbers [1, texts].

    Raises:
      UserError: The model has neither a number nor classes.
    """
    answers = model.predict([{"text": query, "text_b": text} for text in texts])
    if answers and "score" not in answers[0] and "scores" not in answers[0]:
        raise UserError(
            "the reader gives no score to a pair; train one with configs/finetune/"
            "text.py and task.text_b (docs/search.md)"
        )
    last = "".join(model.labels[-1:])
    label = "entailment" if "entailment" in model.labels else last
    scores = np.array(
        [x["score"] if "score" in x else x["scores"][label] for x in answers]
    )
    order = np.argsort(-scores, kind="stable")
    return Found(scores[None, order], order[None])


def _unit(vectors: Vectors) -> Vectors:
    """Returns vectors of length 1, float32, or of 0 where they are 0. Raises ValueError
    if a number is NaN or infinite."""
    vectors = np.asarray(vectors, np.float32)
    if not np.isfinite(np.einsum("ij,ij->i", vectors, vectors)).all():
        raise ValueError("a vector has NaN or infinity")
    return unit_vectors(vectors)


def _blocks(
    asked: Float[np.ndarray, "queries size"], vectors: Vectors, start: int = 0
) -> Iterator[tuple[int, Float[np.ndarray, "queries block"]]]:
    """Yields the cosines of some queries with blocks of the texts from `start` on, and
    the first text of each block."""
    for first in range(start, len(vectors), _TEXTS):
        yield first, asked @ _unit(vectors[first : first + _TEXTS]).T
