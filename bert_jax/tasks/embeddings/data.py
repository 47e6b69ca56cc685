"""Rows of texts (pairs, triplets, pairs with a score, or texts alone), and queries with
their documents, in the layout of BEIR."""

from pathlib import Path

from bert_jax.data.tables import ColumnSpec, Row, as_text, read_table
from bert_jax.data.texts import number_label
from bert_jax.errors import UserError
from bert_jax.scores.retrieval import LEFT_OUT

_JUDGMENT = ("query-id", "corpus-id", "score")


def read_texts(
    source: str, names: dict[str, str], form: str, most: float
) -> tuple[list[Row], str]:
    """Reads rows of `texts`, a tuple, and perhaps `score`, from 0 to 1.

    Returns:
      The rows, and their kind: texts, pairs, triplets or scores.

    Args:
      names: Columns `text`, `text_b`, `negative` and `score`. All but the first may be
        missing. Without `text_b`, a column `positive` is used instead.
      form: csv, tsv or jsonl. Empty means by the file's ending.
      most: Largest score, which becomes 1.

    Raises:
      UserError: A row is wrong, or has other columns than the first.
    """
    optional = (names["text_b"], "positive", names["negative"], names["score"])
    records = read_table(source, ColumnSpec((names["text"],), optional, form))
    rows, kinds = [], []
    for where, fields in records:
        row, kind = _row(fields, names, where, most)
        rows.append(row)
        kinds.append(kind)
        if kind != kinds[0]:
            raise UserError(
                f"{where}: a row of {kind}, but the first row is of {kinds[0]}; keep "
                "them in files of their own"
            )
    return rows, kinds[0]


def _row(fields: Row, names: dict[str, str], where: str, most: float) -> tuple:
    text_b = names["text_b"] if fields.get(names["text_b"]) is not None else "positive"
    columns = [names["text"], text_b, names["negative"]]
    found = [c for c in columns if c == columns[0] or fields.get(c) is not None]
    if found == [columns[0], columns[2]]:
        raise UserError(f"{where}: has {columns[2]!r}, but no {names['text_b']!r}")
    row: Row = {"texts": tuple(as_text(fields[c], where, c) for c in found)}
    for column, text in zip(found, row["texts"], strict=True):
        if not text.strip():
            raise UserError(f"{where}: {column!r} is an empty text; leave the row out")
    score = fields.get(names["score"])
    if score is None or len(found) != 2:
        return row, ("texts", "pairs", "triplets")[len(found) - 1]
    try:
        row["score"] = float(score) / most
    except (TypeError, ValueError):
        row["score"] = -1.0
    if not 0 <= row["score"] <= 1:
        raise UserError(
            f"{where}: {names['score']!r} is {score!r:.60}; it must be a number from 0 "
            f"to config.task.max_score={most:g}"
        )
    return row, "scores"


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
        text = as_text(fields["text"], where, "text")
        texts[str(fields["_id"])] = f"{fields.get('title') or ''} {text}".strip()
    return texts
