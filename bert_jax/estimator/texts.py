"""Texts, labels and weights as scikit-learn's users give them."""

from typing import Any

import numpy as np


def text_tags(tags: Any) -> Any:
    tags.input_tags.string = tags.input_tags.one_d_array = True
    tags.input_tags.two_d_array = False
    return tags


def labels_of(y: Any) -> np.ndarray:
    """Returns classes, or 0 and 1 for each of several labels. Raises ValueError for
    others."""
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2:
        if not np.isin(labels, (0, 1)).all():
            raise ValueError("y with several columns has 0 and 1 for each label")
        return labels.astype(int)
    if any(label is None or label != label for label in labels.ravel().tolist()):
        raise ValueError("y contains NaN or None: each text needs a class")
    return labels


def text_rows(X: Any, weights: Any = None) -> list[dict[str, Any]]:
    """Returns rows with `text`, of pairs `text_b` and with weights `weight`."""
    pairs = X.to_numpy() if hasattr(X, "columns") else X
    if isinstance(X, list) and X and isinstance(X[0], list | tuple):
        pairs = np.array(X, object)
    if getattr(pairs, "ndim", 1) == 2 and pairs.shape[1] == 2:
        both = zip(_texts(pairs[:, 0]), _texts(pairs[:, 1]), strict=True)
        rows: list[dict] = [{"text": one, "text_b": other} for one, other in both]
    else:
        rows = [{"text": text} for text in _texts(X)]
    if weights is None:
        return rows
    given = np.asarray(weights, float)
    if given.shape != (len(rows),) or not (given >= 0).all():
        raise ValueError(f"sample_weight: {len(rows)} numbers of at least 0 are needed")
    return [{**row, "weight": x} for row, x in zip(rows, given.tolist(), strict=True)]


def single_texts(X: Any) -> list[str]:
    """Returns texts. Raises ValueError for pairs."""
    rows = text_rows(X)
    if rows and "text_b" in rows[0]:
        raise ValueError("X has pairs; one text in each row is required")
    return [row["text"] for row in rows]


def _texts(given: Any) -> list[str]:
    """Returns texts of a list, an array or a column. Raises ValueError for others."""
    if isinstance(given, str):
        raise ValueError("a list of texts is required, not one text")
    if hasattr(given, "columns"):
        raise ValueError("a column of texts, or two of pairs, not a whole table")
    texts = list(given)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"text {number}: {text!r:.60} is not a string")
    return [str(text) for text in texts]  # NumPy's strings are a class of their own
