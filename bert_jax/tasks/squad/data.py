"""Questions and answers in SQuAD's JSON, versions 1.1 and 2.0, or in rows.

{"data": [{"paragraphs": [{"context": ..., "qas": [{"id", "question", "answers":
[{"text", "answer_start"}], "is_impossible"}]}]}]}

A row has `id`, `context`, `question` and `answers`, which may be {"text": [...],
"answer_start": [...]}. Rows are lines of JSON, or the members of "data" or of a list.
"""

import bisect
import functools
import itertools
import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_jax.data import tables
from bert_jax.data.lines import read_lines
from bert_jax.data.tables import BY_NAME, Row
from bert_jax.errors import UserError
from bert_jax.runtime import untrusted

# Characters that a file's answer_start may be off. COVID-QA is off by one where the
# text starts with a space. Offsets counted in bytes are off by more.
NEARBY = 10
_CALLED = {str: "text", int: "an integer", list: "a list", bool: "true or false"}


def read_questions(path: str | Path) -> list[Row]:
    """Reads the questions of a file (JSON, perhaps compressed), or of a split on the
    Hub or of TFDS (hf:rajpurkar/squad:train, tfds:squad/v1.1:train), in order.

    Returns:
      Rows of `id`, `question`, `context`, `answers` (None where the file has none) with
      `text` and `answer_start`, and `is_impossible`.

    Raises:
      UserError: Not JSON, or not SQuAD's format. The message has the location.
    """
    rows: list[Row] = []
    for entry, where in _entries(path):
        is_article = not isinstance(entry, dict) or "context" not in entry
        whole = [(entry, where)]
        paragraphs = _items(entry, "paragraphs", where) if is_article else whole
        for paragraph, at in paragraphs:
            context = _value(paragraph, "context", str, at)
            is_row = "question" in paragraph and "qas" not in paragraph
            questions = [(paragraph, at)] if is_row else _items(paragraph, "qas", at)
            rows += [_question(question, context, here) for question, here in questions]
    if not rows:
        raise UserError(f"{path}: has no questions; is it a SQuAD file?")
    return rows


def _entries(path: str | Path) -> Iterator[tuple[Any, str]]:
    """Yields articles, paragraphs or rows, each with its location for errors."""
    if str(path).startswith(BY_NAME) or str(path).endswith(".parquet"):
        yield from ((row.fields, row.where) for row in tables.read_rows(str(path)))
        return
    lines = [(number, line) for number, line in read_lines(path) if line.strip()]
    if len(lines) > 1 and _is_object(lines[0][1]):
        for number, line in lines:
            where = f"{path}:{number}"
            yield untrusted.parse_json(line, where), where
        return
    hint = "; a SQuAD file is one JSON object, or a row in each line"
    content = untrusted.parse_json(
        "\n".join(line for _, line in lines), str(path), hint
    )
    if isinstance(content, dict) and "context" in content:
        yield content, str(path)
        return
    file = {"data": content} if isinstance(content, list) else content
    yield from _items(file, "data", str(path))


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _question(item: Row, context: str, where: str) -> Row:
    number = _value(item, "id", (str, int), where)
    where = f"{where} (id {number})"
    answers = None
    if item.get("answers") is not None:
        golds = _answers(item, where)
        answers = [_recompose_answer(context, gold) for gold in golds]
    impossible = {"is_impossible": answers == [], **item}
    return {
        "id": str(number),
        "question": _value(item, "question", str, where),
        "context": context,
        "answers": answers,
        "is_impossible": _value(impossible, "is_impossible", bool, where),
    }


def _answers(item: Row, where: str) -> Iterator[Row]:
    if isinstance(item["answers"], dict):  # a row's, in columns
        texts, starts = (
            _value(item["answers"], name, list, where)
            for name in ("text", "answer_start")
        )
        if len(texts) != len(starts):
            raise UserError(
                f"{where}: 'answers' needs two lists of one length, 'text' and "
                "'answer_start'"
            )
        pairs = zip(texts, starts, strict=True)
        item = {"answers": [{"text": t, "answer_start": n} for t, n in pairs]}
    for answer, at in _items(item, "answers", where):
        text = _value(answer, "text", str, at)
        yield {"text": text, "answer_start": _value(answer, "answer_start", int, at)}


def _value(item: Any, key: str, kind: Any, where: str) -> Any:
    if not isinstance(item, dict):
        raise UserError(f"{where}: not a JSON object; one with {key!r} is required")
    if key not in item:
        raise UserError(f"{where}: has no {key!r}, which SQuAD's format requires")
    if not isinstance(item[key], kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        called = " or ".join(_CALLED[each] for each in kinds)
        raise UserError(f"{where}: {key!r} is {item[key]!r:.40}, not {called}")
    return item[key]


def _items(item: Any, key: str, where: str) -> Iterator[tuple[Row, str]]:
    """Yields the members of a list, each with its location for errors."""
    separator = ": " if key == "data" else "."
    for index, member in enumerate(_value(item, key, list, where)):
        yield member, f"{where}{separator}{key}[{index}]"


def find_answer(context: str, answer: Row) -> tuple[int, int] | None:
    """Finds an answer in the context: its first character and the one past its last.

    White space around the answer does not count, and any white space inside it matches
    any other (as in run_squad.py). Among several positions within NEARBY characters of
    `answer_start`, takes the nearest.
    """
    text = answer["text"].strip()
    if not text or answer["answer_start"] > len(context) + NEARBY:
        return None
    start = answer["answer_start"] + _lead(answer)
    if start >= 0 and context.startswith(text, start):
        return start, start + len(text)
    pattern = re.compile(r"\s+".join(map(re.escape, text.split())))
    places = []
    for begin in range(max(0, start - NEARBY), start + NEARBY + 1):
        if match := pattern.match(context, begin):
            places.append(match.span())
    return min(places, key=lambda place: abs(place[0] - start), default=None)


def _lead(answer: Row) -> int:
    return len(answer["text"]) - len(answer["text"].lstrip())


def _recompose_answer(context: str, answer: Row) -> Row:
    """Returns an answer as its context composes it, if that differs (NFC and NFD).

    Then `answer_start` may count the characters of either form. From the answers that
    are found, takes the one nearest to its start.
    """
    nfc = functools.partial(unicodedata.normalize, "NFC")
    nfd = functools.partial(unicodedata.normalize, "NFD")
    start, lead = answer["answer_start"], _lead(answer)
    place, best = find_answer(context, answer), answer
    distance = abs(place[0] - start - lead) if place else NEARBY + 1
    if not distance or nfc(context) == nfd(context):
        return answer
    ends = [0, *itertools.accumulate(len(nfd(letter)) for letter in context)]
    start, text = max(0, start), nfd(answer["text"])
    of_context, of_nfc = ends[: start + 1][-1], len(nfd(nfc(context)[:start]))
    for begin in (of_context, of_nfc, start):
        place = find_answer(nfd(context), {"text": text, "answer_start": begin})
        if place and abs(place[0] - begin - lead) < distance:
            first = bisect.bisect_right(ends, place[0]) - 1
            there = context[first : bisect.bisect_left(ends, place[1])]
            if nfd(there).split() == text.split():
                best = {"text": there, "answer_start": first}
                distance = abs(place[0] - begin - lead)
    return best
