"""Reads questions and answers in SQuAD's JSON, versions 1.1 and 2.0.

{"data": [{"paragraphs": [{"context": ..., "qas": [{"id", "question", "answers":
[{"text", "answer_start"}], "is_impossible"}]}]}]}
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
    content: Any
    if str(path).startswith(BY_NAME):
        rows = (record.fields for record in tables.read_rows(str(path)))
        content = _as_file(rows)
    else:
        text = "\n".join(line for _, line in read_lines(path))
        hint = "; SQuAD's files are one JSON object each"
        content = untrusted.parse(text, str(path), hint)
    counts: Counter[str] = Counter()
    examples = list(_examples(content, str(path)))
    if not examples:
        raise UserError(f"{path}: has no questions; is it a SQuAD file?")
    times = Counter(example.id for example in examples)
    repeated = sum(count - 1 for count in times.values())
    empty = sum(not example.question.strip() for example in examples)
    counts["repeated ids (the last one's answer is kept)"] = repeated
    counts["empty questions"] = empty
    return examples, +counts


def _as_file(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The Hub's or TFDS's rows as SQuAD's files have them; without an answer:
    impossible."""
    paragraphs = []
    for row in rows:
        answers = row.get("answers") or {}
        texts, starts = answers.get("text", []), answers.get("answer_start", [])
        question: dict[str, Any] = {
            **{name: row[name] for name in ("id", "question") if name in row},
            "answers": [
                {"text": text, "answer_start": start}
                for text, start in zip(texts, starts, strict=True)
            ],
            "is_impossible": not texts,
        }
        context = {"context": row["context"]} if "context" in row else {}
        paragraphs.append({**context, "qas": [question]})
    return {"data": [{"paragraphs": paragraphs}]}


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
    """Returns `text` if it is valid text.

    Raises:
      ValueError: it is not a string, or has half of a surrogate pair.
    """
    if not isinstance(text, str):
        raise ValueError(f"is {json.dumps(text)[:40]}, not text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} is half of a surrogate pair"
        ) from error
    return text


def _examples(content: Any, where: str) -> Iterator[Example]:
    for article, place in _items(content, "data", where):
        for paragraph, at in _items(article, "paragraphs", place):
            context = _text(paragraph, "context", at)
            for question, here in _items(paragraph, "qas", at):
                yield _example(question, context, here)


def _example(item: dict[str, Any], context: str, where: str) -> Example:
    number = _value(item, "id", where)
    if isinstance(number, bool) or not isinstance(number, int | str):
        raise UserError(f"{where}: id is neither text nor an integer")
    where = f"{where} (id {number})"
    answers = None
    if "answers" in item:
        answers = tuple(
            Gold(_text(answer, "text", at), _start(answer, at))
            for answer, at in _items(item, "answers", where)
        )
    impossible = item.get("is_impossible", False)
    if not isinstance(impossible, bool):
        raise UserError(f"{where}: is_impossible is neither true nor false")
    question = _text(item, "question", where)
    return Example(str(number), question, context, answers, impossible)


def _value(item: Any, key: str, where: str) -> Any:
    if not isinstance(item, dict):
        raise UserError(f"{where}: not a JSON object; one with {key!r} is required")
    if key not in item:
        raise UserError(f"{where}: has no {key!r}, which SQuAD's format requires")
    return item[key]


def _items(item: Any, key: str, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The members of a list, each with its place for errors."""
    members: Sequence[Any] = _value(item, key, where)
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
