"""Text passages of Wikipedia's articles, without headings, lists and tables.

"For Wikipedia we extract only the text passages and ignore lists, tables, and headers"
(paper, section 3.1). TFDS's articles still have those, but without their markup.
"""

import re

# A line this long is a passage even if it does not end a sentence: it introduces a
# formula or a list, or its language has no periods (Thai).
_LONG = 200
_SHORT = 20  # a shorter line is a heading ("Washington, D.C.")
# The end of a sentence (Unicode's Sentence_Terminal, for living scripts), and the
# quotation marks and brackets that may follow it.
_ENDS = (
    ".!?\u2026\u3002\uff01\uff1f\uff61\u061f\u06d4\u0964\u0965"
    "\u0589\u1362\u104a\u104b\u17d4\u166e"
)
_CLOSING = "'\"\u2019\u201d\u00bb\u203a\u300d\u300f\uff09)\\]"
_SENTENCE_END = re.compile(rf"[{_ENDS}][{_CLOSING}]*$")
# Remains of a picture's frame ("thumb|A caption") or of a table, or a list's bullet.
_MARK = re.compile(r"[^\s|]*\||!|[-\u2013\u2022*#:;]\s")
# Headings of English Wikipedia's last sections (Manual of Style, Layout): lists, which
# have no bullet left where editors wrote "*Smith" for "* Smith".
_APPENDICES = {
    *("bibliography", "citations", "external links", "footnotes", "further reading"),
    *("gallery", "notes", "notes and references", "references", "sources", "see also"),
    *("references and notes", "works cited"),
}


def article_paragraphs(text: str) -> str:
    """Returns the paragraphs of an article of Wikipedia, one per line.

    The format is that of `tfds:wikipedia` and `hf:wikimedia/wikipedia`, which come from
    the same program.

    Args:
      text: Sections separated by empty lines. The first line of each is its heading. A
        list item or indented line starts with a space if a space followed its mark.
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
    """Returns the paragraphs of a `tfds:wiki40b` article, one per line.

    Leaves out the titles of articles and sections, and their markers.
    """
    parts = re.split(r"\n?_START_(ARTICLE|SECTION|PARAGRAPH)_\n?", text)
    # parts: text before the first marker, then marker and text alternating.
    pieces = zip(parts[1::2], parts[2::2], strict=True)
    kept = [piece for marker, piece in pieces if marker == "PARAGRAPH"]
    return "\n".join(kept).replace("_NEWLINE_", "\n")
