"""Cuts a text that is far too long before it is tokenized.

The tokenizer takes a hundred times a text's memory, and one call of it hears no signal.
So a long text is tokenized in parts, until there are as many pieces as can matter, and
only these parts are read. They begin where BERT's rules begin a word whatever stands
before, so the pieces are those of the whole text.
"""

import functools
import logging
import re
import unicodedata
from collections.abc import Callable, Iterator

from tokenizers import Tokenizer

from bert_jax import tokenization

log = logging.getLogger(__name__)

LIMIT = 100_000  # characters of a text that is left as it is
PART = 1 << 16  # characters that are tokenized together
_SPACE = re.compile("[ \t\n\r]")
# Where spaces are part of pieces, a run of them is not cut, nor one of punctuation.
_AFTER_WORD = re.compile(r"(?<=\S)[ \t\n\r]")
_MARK_AFTER_WORD = re.compile(r"(?<=[^\W_])[^\w\s]")
_ASCII = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_CHINESE = "\u4e00-\u9fff\u3400-\u4dbf"


class LongTexts:
    """Cuts texts to their first or last pieces.

    Args:
      count: the number of pieces of a text; None: the tokenizer's.
    """

    def __init__(self, tokenizer: Tokenizer, count: Callable[[str], int] | None = None):
        self._tokenizer, self._warned = tokenizer, False
        self._count = count or self._pieces
        self._keeps_spaces = bool(tokenization.kind_of(tokenizer).before_word)
        self._space = _AFTER_WORD if self._keeps_spaces else _SPACE

    @functools.cached_property
    def _begins(self) -> re.Pattern[str]:
        """The characters before which a word ends, whatever it is."""
        pre = self._tokenizer.pre_tokenizer
        if self._keeps_spaces:
            return _MARK_AFTER_WORD
        if pre is None:
            return _SPACE

        def ends(letter: str) -> bool:
            words = pre.pre_tokenize_str(self._normal(f"a{letter}b"))
            return len(words) > 1 and words[0][0] == "a"

        chinese = _CHINESE if ends("\u4e00") and ends("\u3400") else ""
        marks = filter(ends, [*_ASCII, *_of("P", "Z")])
        return re.compile(f"[ \t\n\r{re.escape(''.join(marks))}{chinese}]")

    @functools.cached_property
    def _removed(self) -> re.Pattern[str]:
        """Control characters, and perhaps accents, of which nothing is left."""
        letters = [x for x in [*_of("Mn", "Cc", "Cf"), "\ufffd"] if not self._normal(x)]
        return re.compile(f"[{re.escape(''.join(letters))}]+" if letters else "(?!)")

    @functools.cached_property
    def _longest(self) -> int:
        """Characters of the longest piece."""
        return max(map(len, tokenization.pieces_of(self._tokenizer)))

    def _normal(self, text: str) -> str:
        rules = self._tokenizer.normalizer
        return text if rules is None else rules.normalize_str(text)

    def cut(self, text: str, enough: int, mode: str = "head") -> str:
        """A text with at least its first `enough` pieces, or all of them.

        Where nothing but its pieces matters: runs of white space, of control characters
        and of words that are one [UNK] become shorter.

        Args:
          mode: of data/truncation.py; "tail" and "head_tail" keep the last ones, too.
        """
        if len(text) <= LIMIT:
            return text
        kept, is_whole = self._first(text, enough)
        if is_whole:
            return kept
        if mode != "head":
            kept += f" {self._last(text, enough)}"
        ends = "first" if mode == "head" else "first and last"
        self._warn(len(text), f"{ends} {enough:,} tokens")
        return kept

    def beginning(self, text: str, most: int) -> str:
        """At most so many characters of a text, as they are, up to the end of a word
        if there is one."""
        if len(text) <= most:
            return text
        self._warn(len(text), f"first {most:,} characters")
        return text[: text.rfind(" ", most // 2, most) + 1 or most]

    def _pieces(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _warn(self, length: int, what: str) -> None:
        if not self._warned:
            log.warning(
                "warning: a text of %s characters is not read to its end, but its %s "
                "only; so are others of such a length",
                *(f"{length:,}", what),
            )
        self._warned = True

    def _first(self, text: str, enough: int) -> tuple[str, bool]:
        """The beginning with more than `enough` pieces, and whether it has them all."""
        kept: list[str] = []
        pieces = 0
        for part in self._parts(text, enough):
            if pieces > enough:
                return "".join(kept), False
            kept.append(part)
            pieces += self._count(part)
        return "".join(kept), True

    def _last(self, text: str, enough: int) -> str:
        size = LIMIT
        while True:
            begin = max(0, len(text) - size)
            if begin and (match := self._begins.search(text, begin)):
                begin = match.start()
            kept = list(self._parts(text[begin:], enough))
            if not begin or sum(map(self._count, kept)) > enough:
                return "".join(kept)
            size *= 4

    def _parts(self, text: str, enough: int) -> Iterator[str]:
        """The text in parts of about PART characters; each begins a word. Of so long a
        word there are `enough` pieces."""
        begin = 0
        while begin < len(text):
            end = self._end(text, begin)
            part, begin = text[begin:end], end
            if len(part) > 2 * PART:  # a word
                part = self._removed.sub("", part)
                if not self._keeps_spaces:
                    part = part[: 2 * PART]
                elif len(part) > 2 * (most := max(PART, enough * self._longest)):
                    part = part[:most] + part[-most:]
            if self._keeps_spaces or not part.isspace():
                yield part

    def _end(self, text: str, begin: int) -> int:
        """Where the next part begins: at a space if there is one near."""
        if len(text) - begin <= PART:
            return len(text)
        for rule in (self._space, self._begins):
            if match := rule.search(text, begin + PART // 2, begin + 2 * PART):
                return match.start()
        match = self._begins.search(text, begin + 2 * PART)
        return match.start() if match else len(text)


@functools.cache
def _of(*kinds: str) -> list[str]:
    """The characters whose category begins so, of the first 65,536: `re` looks these up
    at once, and goes through the ranges of others."""
    every = map(chr, range(1 << 16))
    return [c for c in every if unicodedata.category(c).startswith(kinds)]
