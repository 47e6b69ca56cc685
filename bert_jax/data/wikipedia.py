"""Text passages of Wikipedia's articles, without headings, lists and tables.

"For Wikipedia we extract only the text passages and ignore lists, tables, and headers"
(paper, section 3.1). What TFDS gives of an article still has them, without their marks.
"""

import re

# A line that ends no sentence is a passage all the same from this many characters on:
# one that leads to a formula or a list, or of a language without full stops (Thai).
_LONG = 200
_SHORT = 20  # and below this many it is a heading ("Washington, D.C.")
# The end of a sentence (Unicode's Sentence_Terminal, those of living scripts) and what
# may close behind it: quotation marks, brackets.
_ENDS = (
    ".!?\u2026\u3002\uff01\uff1f\uff61\u061f\u06d4\u0964\u0965"
    "\u0589\u1362\u104a\u104b\u17d4\u166e"
)
_CLOSING = "'\"\u2019\u201d\u00bb\u203a\u300d\u300f\uff09)\\]"
_SENTENCE_END = re.compile(rf"[{_ENDS}][{_CLOSING}]*$")
# What is left of a picture's frame ("thumb|A caption") or of a table; a list's mark.
_MARK = re.compile(r"[^\s|]*\||!|[-\u2013\u2022*#:;]\s")
# English Wikipedia's last sections, by their headings: lists without any mark of one
# where their editors wrote "*Smith" for "* Smith" (Manual of Style, Layout).
_APPENDICES = frozenset(
    [
        "bibliography",
        "citations",
        "external links",
        "footnotes",
        "further reading",
        "gallery",
        "notes",
        "notes and references",
        "references",
        "references and notes",
        "see also",
        "sources",
        "works cited",
    ]
)


def paragraphs(text: str) -> str:
    """The paragraphs of `tfds:wikipedia`, a line each.

    Args:
      text: sections with an empty line between them, the first line of each its
        heading; a line of a list or an indented one begins with a space where its mark
        did not touch the text.
    """
    kept = []
    in_appendix = False
    after_empty = True
    for line in text.split("\n"):
        stripped = line.strip()
        if after_empty and stripped and not _is_passage(line):
            in_appendix = stripped.lower() in _APPENDICES
        elif not in_appendix and _is_passage(line):
            kept.append(stripped)
        after_empty = not stripped
    return "\n".join(kept)


def _is_passage(line: str) -> bool:
    text = line.rstrip()
    if len(text) < _SHORT or text[0].isspace() or _MARK.match(text):
        return False
    return len(text) >= _LONG or _SENTENCE_END.search(text) is not None


def wiki40b_paragraphs(text: str) -> str:
    """The paragraphs of `tfds:wiki40b`, a line each.

    Titles of articles and sections, and the markers before them, are left out.
    """
    parts = re.split(r"\n?_START_(ARTICLE|SECTION|PARAGRAPH)_\n?", text)
    # parts: text before the first marker, then marker and text by turns.
    pieces = zip(parts[1::2], parts[2::2], strict=True)
    kept = [piece for marker, piece in pieces if marker == "PARAGRAPH"]
    return "\n".join(kept).replace("_NEWLINE_", "\n")
