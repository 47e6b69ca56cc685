"""A document's paragraphs, and the stages that judge a paragraph by itself.

What a paragraph ends in and the phrases of web pages are C4's rules (Raffel et al.
2020, section 2.2), the former for other scripts too.
"""

import re
from collections.abc import Callable, Sequence

from bert_jax.data.corpus import Document

# The end of a sentence (in Latin, Chinese, Indian, Arabic, Ethiopian, Armenian, Khmer,
# Burmese and Tibetan script; Thai has none) or of broken speech (a dash), closing
# quotes and brackets, and a citation such as [12].
_END = re.compile(
    r"""[.!?\u2026\u3002\uff01\uff1f\uff61\u0964\u0965\u061f\u06d4\u1362\u0589\uff0e\u17d4\u104b\u0f0d"""
    r"""\"'\u201c\u201d\u2018\u2019\xab\xbb\u2039\u203a\u300b\u300d\u300f\u2013\u2014-]"""
    r"""[)\]\"'\u201c\u201d\u2018\u2019\xab\xbb\u2039\u203a\u300b\u300d\u300f\u3011\uff09*_]*"""
    r"""(\[[\w ]{1,20}\])*\s*$"""
)
_HEADING = 200  # characters; C4 drops longer lines too, unfinished speech for instance
# A bullet, a number or a letter in brackets, before the text of an item.
_ITEM = re.compile(
    r"\s*([-*+\u2022\u2023\u25aa\u25e6\u25cf\u25cb\u25a0\xb7]|\(?(\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)]|\[\d{1,3}\])\s+\S"
)
_INITIAL = re.compile(r"\s*[A-Z]\.\s")  # A. Lincoln: a name, no item
# C4 drops any line with them. Longer paragraphs may be about them.
_NOTICE = 300  # characters
_PHRASES = re.compile(
    r"\b(enabl|disabl|activat|requir|support|turn)\w* .{0,30}javascript"
    r"|javascript .{0,30}\b(enabled|disabled|activated|required|supported|turned)\b"
    r"|lorem ipsum|terms of use|privacy policy|cookie policy"
    r"|uses cookies|use of cookies|use cookies",
    re.I | re.S,
)
# What Project Gutenberg puts around a book.
_OPENING = re.compile(r"\*\*\* ?START OF TH(E|IS) PROJECT GUTENBERG", re.I)
_CLOSING = re.compile(
    r"\*\*\* ?END OF TH(E|IS) PROJECT GUTENBERG"
    r"|^\s*End of (the )?Project Gutenberg's\b",
    re.I,
)
_BLANK = re.compile(r"\n[ \t\r]*\n")


def split(document: Document) -> list[str]:
    """Its paragraphs, or its sentences where each has a line."""
    if document.form == "wrapped":
        return _BLANK.split(document.text)
    return document.text.split("\n")


def joined(document: Document, parts: Sequence[str]) -> Document:
    """The document with these paragraphs only."""
    separator = "\n\n" if document.form == "wrapped" else "\n"
    return document._replace(text=separator.join(parts))


def boilerplate(parts: Sequence[str]) -> list[bool]:
    """Which are no part of the text: what web pages say about themselves, and Project
    Gutenberg's words before and after a book."""
    marks = [len(p) <= _NOTICE and bool(_PHRASES.search(p)) for p in parts]
    begun, outside = 0, False  # where the last book ended, and whether one has
    for number, part in enumerate(parts):
        if _OPENING.search(part):
            marks[begun : number + 1] = [True] * (number + 1 - begun)
            outside = False
        elif _CLOSING.search(part) and not outside:
            begun, outside = number, True
    if outside:
        marks[begun:] = [True] * (len(parts) - begun)
    return marks


def headings(parts: Sequence[str]) -> list[bool]:
    """Which are short and do not end as a sentence does: titles, lines of tables."""
    short = (part.rstrip() if len(part) <= _HEADING else "" for part in parts)
    return [bool(part) and not _END.search(part) for part in short]


def lists(parts: Sequence[str]) -> list[bool]:
    """Which begin as an item of a list does."""
    return [bool(_ITEM.match(part)) and not _INITIAL.match(part) for part in parts]


RULES: dict[str, Callable[[Sequence[str]], list[bool]]] = {
    "boilerplate": boilerplate,
    "headings": headings,
    "lists": lists,
}
