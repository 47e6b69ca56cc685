"""Rows of texts (pairs, triplets, pairs with a score, or texts alone), and queries with
their documents, in the layout of BEIR."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.tables import ColumnSpec, Row, read_table, require_string
from bert_jax.data.texts import number_label
from bert_jax.errors import UserError
from bert_jax.scores.retrieval import LEFT_OUT

_JUDGMENT = ("query-id", "corpus-id", "score")
# Words in the names of columns that tell which pairs are partners.
_SCORE = re.compile(
    "is|duplicates?|gold|labels?|ratings?|relatedness|relevance|scores?|sim|similarity|"
    "target"
)


def read_texts(
    source: str,
    names: dict[str, str],
    form: str,
    max_score: float,
    split: str,
    notices: Counter[str],
) -> list[Row]:
    """Reads rows of `texts`, a tuple, and perhaps `score`, from 0 to 1. All are of one
    `kind_of`.

    Args:
      names: Columns `text`, `text_b`, `negative` and `score`. All but the first may be
        missing. Without `text_b`, a column `positive` is used instead. Further
        negatives are `negative_1`, `negative_2`, ...
      form: csv, tsv or jsonl. Empty means by the file's ending.
      max_score: Largest score, which becomes 1.
      split: The split, for `notices`.
      notices: Counts, to which those of columns that are not read are added.

    Raises:
      UserError: A row is wrong, or has other columns than the first. Or pairs have a
        score or label in a column that is not read.
    """
    optional = (names["text_b"], "positive", names["negative"], names["score"])
    records = read_table(source, ColumnSpec((names["text"],), optional, form))
    columns = [*dict.fromkeys(name for record in records for name in record.fields)]
    numbered = re.compile(rf"{re.escape(names['negative'])}_?\d+")
    negatives = [names["negative"], *filter(numbered.fullmatch, columns)]
    rows, kinds, forms, read = [], [], [], {names["score"]}
    for where, fields in records:
        row, kind, found = _row(fields, names, negatives, where, max_score)
        rows.append(row)
        kinds.append(kind)
        forms.append(f"{len(found)} texts" if len(found) > 3 else kind)
        read.update(found)
        if forms[-1] != forms[0]:
            raise UserError(
                f"{where}: a row of {forms[-1]}, but the first row is of {forms[0]}; "
                "keep them in files of their own"
            )
    if kinds[0] != "scores":
        read.discard(names["score"])
    for column in [name for name in columns if name not in read]:
        values = [record.fields.get(column) for record in records]
        if kinds[0] == "pairs" and _has_pair_labels(column, values):
            raise UserError(
                f"{source}: the column {column!r} is not read, so all rows would be "
                f"partners; --config.task.score={column} reads it, a number from 0 to "
                "config.task.max_score; or leave the column out"
            )
        notices[f"{split}: rows whose column {column!r} is not read"] = len(rows)
    return rows


def kind_of(rows: Sequence[Row]) -> str:
    """Returns the kind of some rows: texts, pairs, triplets (of one or more negatives)
    or scores."""
    if "score" in rows[0]:
        return "scores"
    return ("texts", "pairs", "triplets")[min(len(rows[0]["texts"]), 3) - 1]


def _has_pair_labels(column: str, values: Sequence[Any]) -> bool:
    """Returns whether a column has a label or score of pairs, by its name or values."""
    words = re.findall("[a-z]+", re.sub("([a-z])([A-Z])", r"\1 \2", column).lower())
    try:
        numbers = {float(value) for value in values}
    except (TypeError, ValueError):
        numbers = set()
    if any(map(_SCORE.fullmatch, words)):
        return len({*map(str, values)}) > 1
    return numbers == {0, 1} or any(number % 1 for number in numbers)


def _row(
    fields: Row,
    names: dict[str, str],
    negatives: Collection[str],
    where: str,
    max_score: float,
) -> tuple[Row, str, list[str]]:
    """Returns a row, its kind, and the columns of its texts."""
    text_b = names["text_b"] if fields.get(names["text_b"]) is not None else "positive"
    columns = [names["text"], text_b, *negatives]
    found = [c for c in columns if c == columns[0] or fields.get(c) is not None]
    if len(found) > 1 and text_b not in found:
        raise UserError(f"{where}: has {found[1]!r}, but no {names['text_b']!r}")
    row: Row = {"texts": tuple(require_string(fields[c], where, c) for c in found)}
    for column, text in zip(found, row["texts"], strict=True):
        if not text.strip():
            raise UserError(f"{where}: {column!r} is an empty text; leave the row out")
    score = fields.get(names["score"])
    if score is None or len(found) != 2:
        return row, ("texts", "pairs", "triplets")[min(len(found), 3) - 1], found
    try:
        row["score"] = float(score) / max_score
    except (TypeError, ValueError):
        row["score"] = -1.0
    if not 0 <= row["score"] <= 1:
        raise UserError(
            f"{where}: {names['score']!r} is {score!r:.60}; it must be a number from 0 "
            f"to config.task.max_score={max_score:g}"
        )
    return row, "scores", found


def read_retrieval(path: Path) -> tuple[list[str], list[str], list[dict[int, float]]]:
    """Reads judgments in BEIR's layout: FOLDER/qrels/NAME.tsv (`query-id`, `corpus-id`
    and `score`), for the queries and documents of FOLDER/queries.jsonl and
    FOLDER/corpus.jsonl.

    A document's text is its title and its text. A document with the query's own id is
    left out, unless it is relevant, as in BEIR's evaluation: a query may be a document.

    Returns:
      The documents, the judged queries, and their judgments: gains by document.

    Raises:
      UserError: A file is missing or wrong, or a judgment names no document or query.
    """
    folder = path.parent.parent
    documents, queries = (_texts(folder / f"{n}.jsonl") for n in ("corpus", "queries"))
    places = {name: index for index, name in enumerate(documents)}
    judged: dict[str, dict[int, float]] = {}
    for where, fields in read_table(str(path), ColumnSpec(_JUDGMENT, format="tsv")):
        query, document, gain = (fields[column] for column in _JUDGMENT)
        for name, known in ((query, queries), (document, documents)):
            if name not in known:
                raise UserError(f"{where}: {name!r:.60} is not in the folder's files")
        judged.setdefault(query, {})[places[document]] = number_label(gain, where)
    for query in judged.keys() & places.keys():
        own = places[query]
        if judged[query].get(own, 0) <= 0:
            judged[query][own] = LEFT_OUT
    return (
        [*documents.values()],
        [queries[query] for query in judged],
        [*judged.values()],
    )


def _texts(path: Path) -> dict[str, str]:
    texts = {}
    for where, fields in read_table(str(path), ColumnSpec(("_id", "text"))):
        text = require_string(fields["text"], where, "text")
        texts[str(fields["_id"])] = f"{fields.get('title') or ''} {text}".strip()
    return texts
