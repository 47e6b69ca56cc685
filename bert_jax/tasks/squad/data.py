"""Reads questions and answers in SQuAD's JSON, versions 1.1 and 2.0, or in rows.

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
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.data import tables
from bert_jax.data.columns import BY_NAME
from bert_jax.data.lines import read_lines
from bert_jax.errors import UserError
from bert_jax.runtime import untrusted

# Characters that a file's answer_start may be off. COVID-QA is off by one where the
# text starts with a space; offsets counted in bytes are off by more.
NEARBY = 10


class Gold(NamedTuple):
    """An annotator's answer."""

    text: str
    start: int  # character of the context


class Example(NamedTuple):
    """A question about a context."""

    id: str
    question: str
    context: str
    answers: tuple[Gold, ...] | None = None  # None: the file has no answers
    impossible: bool = False  # is_impossible in the file


def read(path: str | Path) -> tuple[list[Example], Counter[str]]:
    """Returns the questions of a file (JSON, perhaps compressed), or of a split on the
    Hub or of TFDS (hf:rajpurkar/squad:train, tfds:squad/v1.1:train), in order, and
    notices.

    The notices count unusual questions, which are kept: repeated ids and empty ones.

    Raises:
      UserError: not JSON, or not SQuAD's format; says where.
    """
    examples = [x for entry, where in _entries(path) for x in _examples(entry, where)]
    if not examples:
        raise UserError(f"{path}: has no questions; is it a SQuAD file?")
    counts: Counter[str] = Counter()
    times = Counter(example.id for example in examples)
    repeated = sum(count - 1 for count in times.values())
    empty = sum(not example.question.strip() for example in examples)
    counts["repeated ids (the last one's answer is kept)"] = repeated
    counts["empty questions"] = empty
    return examples, +counts


def _entries(path: str | Path) -> Iterator[tuple[Any, str]]:
    """Yields articles, paragraphs or rows, each with its location for errors."""
    if str(path).startswith(BY_NAME) or str(path).endswith(".parquet"):
        yield from ((row.fields, row.where) for row in tables.read_rows(str(path)))
        return
    lines = [(number, line) for number, line in read_lines(path) if line.strip()]
    if len(lines) > 1 and _is_object(lines[0][1]):
        for number, line in lines:
            where = f"{path}:{number}"
            yield untrusted.parse(line, where), where
        return
    hint = "; a SQuAD file is one JSON object, or a row in each line"
    content = untrusted.parse("\n".join(line for _, line in lines), str(path), hint)
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


def find(context: str, answer: Gold) -> tuple[int, int] | None:
    """Finds an answer in the context: its first character and the one past its last.

    White space around the answer does not count, and any white space inside it matches
    any other (as in run_squad.py). Among several places within NEARBY characters of
    `start`, takes the nearest.
    """
    text = answer.text.strip()
    if not text:
        return None
    lead = len(answer.text) - len(answer.text.lstrip())
    start = answer.start + lead
    if start >= 0 and context.startswith(text, start):
        return start, start + len(text)
    pattern = re.compile(r"\s+".join(map(re.escape, text.split())))
    places = []
    for begin in range(max(0, start - NEARBY), start + NEARBY + 1):
        if match := pattern.match(context, begin):
            places.append(match.span())
    return min(places, key=lambda place: abs(place[0] - start), default=None)


def check_text(text: Any) -> str:
    """Returns `text`.

    Raises:
      ValueError: it is not a string.
    """
    if not isinstance(text, str):
        raise ValueError(f"is {json.dumps(text)[:40]}, not text")
    return text


def _examples(entry: Any, where: str) -> Iterator[Example]:
    is_article = not isinstance(entry, dict) or "context" not in entry
    paragraphs = _items(entry, "paragraphs", where) if is_article else [(entry, where)]
    for paragraph, at in paragraphs:
        context = _text(paragraph, "context", at)
        if "question" in paragraph and "qas" not in paragraph:  # a row
            yield _example(paragraph, context, at)
            continue
        for question, here in _items(paragraph, "qas", at):
            yield _example(question, context, here)


def _example(item: dict[str, Any], context: str, where: str) -> Example:
    number = _value(item, "id", where)
    if isinstance(number, bool) or not isinstance(number, int | str):
        raise UserError(f"{where}: id is neither text nor an integer")
    where = f"{where} (id {number})"
    answers = None
    if item.get("answers") is not None:
        golds = _golds(item, where)
        answers = tuple(_as_in_context(context, gold) for gold in golds)
    impossible = item.get("is_impossible", answers == ())
    if not isinstance(impossible, bool):
        raise UserError(f"{where}: is_impossible is neither true nor false")
    question = _text(item, "question", where)
    return Example(str(number), question, context, answers, impossible)


def _golds(item: dict[str, Any], where: str) -> Iterator[Gold]:
    answers = item["answers"]
    if isinstance(answers, dict):  # a row's, in columns
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not (
            isinstance(texts, list)
            and isinstance(starts, list)
            and len(texts) == len(starts)
        ):
            raise UserError(
                f"{where}: 'answers' needs two lists of one length, 'text' and "
                "'answer_start'"
            )
        pairs = zip(texts, starts, strict=True)
        item = {"answers": [{"text": t, "answer_start": n} for t, n in pairs]}
    for answer, at in _items(item, "answers", where):
        yield Gold(_text(answer, "text", at), _start(answer, at))


def _as_in_context(context: str, answer: Gold) -> Gold:
    """Returns an answer as its context composes it, if that differs (NFC and NFD).

    Then `start` may count the characters of either form: of the answers that are found,
    takes the one nearest to its start.
    """
    nfc = functools.partial(unicodedata.normalize, "NFC")
    nfd = functools.partial(unicodedata.normalize, "NFD")
    start, lead = answer.start, len(answer.text) - len(answer.text.lstrip())
    place, best = find(context, answer), answer
    distance = abs(place[0] - start - lead) if place else NEARBY + 1
    if not distance or nfc(context) == nfd(context):
        return answer
    ends = [0, *itertools.accumulate(len(nfd(letter)) for letter in context)]
    start, text = max(0, start), nfd(answer.text)
    of_context, of_nfc = ends[: start + 1][-1], len(nfd(nfc(context)[:start]))
    for begin in (of_context, of_nfc, start):
        place = find(nfd(context), Gold(text, begin))
        if place and abs(place[0] - begin - lead) < distance:
            first = bisect.bisect_right(ends, place[0]) - 1
            there = context[first : bisect.bisect_left(ends, place[1])]
            if nfd(there).split() == text.split():
                best, distance = Gold(there, first), abs(place[0] - begin - lead)
    return best


def _value(item: Any, key: str, where: str) -> Any:
    if not isinstance(item, dict):
        raise UserError(f"{where}: not a JSON object; one with {key!r} is required")
    if key not in item:
        raise UserError(f"{where}: has no {key!r}, which SQuAD's format requires")
    return item[key]


def _items(item: Any, key: str, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The members of a list, each with its place for errors."""
    members = _value(item, key, where)
    if not isinstance(members, list):
        raise UserError(f"{where}: {key!r} is not a list")
    separator = ": " if key == "data" else "."
    for index, member in enumerate(members):
        yield member, f"{where}{separator}{key}[{index}]"


def _text(item: Any, key: str, where: str) -> str:
    try:
        return check_text(_value(item, key, where))
    except ValueError as error:
        raise UserError(f"{where}: {key!r} {error}") from error


def _start(answer: dict[str, Any], where: str) -> int:
    start = _value(answer, "answer_start", where)
    if isinstance(start, bool) or not isinstance(start, int):
        raise UserError(f"{where}: answer_start is not an integer")
    if abs(start) >= 2**31:
        raise UserError(f"{where}: answer_start={start:.3e} is not a text position")
    return start
