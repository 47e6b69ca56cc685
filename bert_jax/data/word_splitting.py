"""Splitting of a text into words as the words of tagged training data were split.

Training data have words, not the text that they are from. But they show which marks
(characters that are neither letters nor digits) are separated and which are attached:
`left` `.` but `U.S.`, `state-of-the-art`, `John` `'s` but `O'Neill`, `l'` `eau`. The
rule that `word_rule_learning.learn` takes from them is:

1. White space separates words.
2. A mark next to letters or digits is attached to its left, its right, both or neither,
   as it mostly is in training next to the same letters (`mr.`, `'s`), or else next to
   their kind: a word (W), a capital (I), a number (N), a script without spaces (H).
   A mark that training lacks is attached inside a word, and at its ends separated if
   most marks are.
3. A script without spaces is split into the longest words of training, or else into
   characters. Where nearly all words of training are characters, every text is.

A character is a grapheme cluster, so a combining mark stays with its base.
"""

import bisect
import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

Rule = Mapping[str, Any]  # JSON

Spans = list[tuple[int, int]]  # the first character of each, and that after its last

SPACES: Rule = {}
CHARACTERS: Rule = {"characters": True}
# The rule for a model saved without one, as in English treebanks.
USUAL: Rule = {"marks": {"W  ": 0, "  W": 0, "I . ": 3, "W ' s": 1}}

KINDS = ("N", "H")  # kinds whose characters do not matter
LEFT, RIGHT, BOTH = 2, 1, 3  # the sides that a mark is attached to, added up
LONGEST_MARKS = 8  # different marks that belong together
SAME_APOSTROPHE = (
    "\u2019",
    "'",
)  # the typographic apostrophe, and a typewriter's
_CLUSTERS = pre_tokenizers.Split(Regex(r"\X"), "isolated")
APOSTROPHE = re.compile(r"[^\W\d_]+['\u2019][^\W\d_]+")  # inside a word
# The first words of their characters' names.
_UNSPACED = {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO"}
_UNSPACED |= {"IDEOGRAPHIC", "THAI", "LAO", "KHMER", "MYANMAR"}


class Run(NamedTuple):
    """Marks, letters and digits, or letters of scripts without spaces."""

    kind: str  # M for marks, H for scripts without spaces, empty for others
    characters: list[str]  # grapheme clusters
    text: str  # all of them


class WordSplitter:
    """Applies a rule to texts."""

    def __init__(self, rule: Rule):
        """Takes a rule from `learn`, or one of SPACES, CHARACTERS and USUAL."""
        self._marks: Mapping[str, int] = rule.get("marks", {})
        self._endings: Mapping[str, int] = rule.get("endings", {})
        self._words = frozenset(rule.get("words", ()))
        self._longest = max(map(len, self._words), default=1)
        self._into_characters = rule.get("characters", False)

    def spans(self, text: str) -> Spans:
        """Returns the words of a text, in order."""
        spans: Spans = []
        for match in re.finditer(r"\S+", text):
            chunk, end = match.group(), match.start()
            if all(unicodedata.category(c) in ("Cc", "Cf") for c in chunk):
                continue  # BERT removes control characters
            for word in self._split(chunk):
                spans.append((end, end := end + len(word)))
        return spans

    def _split(self, chunk: str) -> list[str]:
        if self._into_characters:
            return _characters(chunk)
        for match in APOSTROPHE.finditer(chunk) if self._endings else ():
            if size := self._endings.get(
                match.group().lower().replace(*SAME_APOSTROPHE)
            ):
                end = match.start() + size
                return [*self._split(chunk[:end]), *self._split(chunk[end:])]
        parts = [part for run in runs_of(chunk) for part in self._parts(run)]
        beside = ["", *("" if part.kind == "M" else part.text for part in parts), ""]
        joins = [False] * (len(parts) + 1)  # a part to the one before it
        for index, part in enumerate(parts):
            if part.kind == "M":
                left, right = beside[index], beside[index + 2]
                sides = self._sides(left, part.text, right)
                joins[index] |= bool(left and sides & LEFT)
                joins[index + 1] |= bool(right and sides & RIGHT)
        words: list[str] = []
        for part, joined in zip(parts, joins, strict=False):
            words.append(words.pop() + part.text if joined else part.text)
        return words

    def _sides(self, left: str, mark: str, right: str) -> int:
        is_known = any(key in self._marks for key in own_keys(left, mark, right))
        if is_known or not (left and right) or "H" not in (_kind(left), _kind(right)):
            return known_sides(self._marks, mark_keys(left, mark, right))
        # Where there are no spaces, a mark between words is like one at their ends.
        to_left = LEFT & known_sides(self._marks, mark_keys(left, mark, ""))
        return to_left | RIGHT & known_sides(self._marks, mark_keys("", mark, right))

    def _parts(self, run: Run) -> Iterator[Run]:
        """Yields words of a script without spaces, or marks that belong together."""
        rest = run.characters
        while rest:
            size = self._size(run.kind, rest) if run.kind else len(rest)
            yield Run(run.kind, rest[:size], "".join(rest[:size]))
            rest = rest[size:]

    def _size(self, kind: str, rest: list[str]) -> int:
        """Returns how many of the first characters are a word, or belong together."""
        longest = self._longest if kind == "H" else LONGEST_MARKS
        for size in range(min(len(rest), longest), 1, -1):
            text = "".join(rest[:size])
            if text in self._words if kind == "H" else self._marks.get(f" {text} "):
                return size
        if kind == "H" or self._marks.get(f" {2 * rest[0]} ") == 0:
            return 1
        return sum(1 for _ in itertools.takewhile(rest[0].__eq__, rest))


def bert_words(text: str) -> Spans:
    """Returns the words of a text by BERT's rule: every punctuation mark is one, and
    every Chinese character."""
    return _bert_tokenizer().encode(text, add_special_tokens=False).offsets


@functools.cache
def _bert_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({"": 0}, unk_token=""))
    tokenizer.normalizer = normalizers.BertNormalizer(
        strip_accents=False, lowercase=False
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def words_of_tokens(
    offsets: Iterable[tuple[int, int]], words: Spans
) -> tuple[list[int], Spans]:
    """Returns the words that tokens belong to.

    Args:
      offsets: Offsets of a text's tokens, in order.
      words: Words of the text, in order.

    Returns:
      The number of each token's word, and the words. Words that share a token are
      merged into one, and text outside of words, such as white space, is a separate
      word.
    """
    owners: list[int] = []
    found: Spans = []
    starts, ends = ([span[side] for span in words] for side in (0, 1))
    for start, end in offsets:
        first, last = bisect.bisect_right(ends, start), bisect.bisect_left(starts, end)
        if first < last and start < end:
            start, end = starts[first], ends[last - 1]
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
        owners.append(len(found) - 1)
    return owners, found


def own_keys(left: str, mark: str, right: str) -> list[str]:
    """Returns the keys under which the sides of a mark are stored, most specific first.

    Capitals denote kinds.
    """
    before, after = literal(left), literal(right)
    mark = mark.replace(*SAME_APOSTROPHE)
    keys = [f"{before} {mark} {after}"]
    if left and right:
        keys += [f"{_kind(left)} {mark} {after}", f"{before} {mark} {_kind(right)}"]
    keys.append(f"{_kind(left)} {mark} {_kind(right)}")
    return list(dict.fromkeys(keys))


def mark_keys(left: str, mark: str, right: str) -> list[str]:
    """Returns `own_keys`, then more general keys for when those are unknown."""
    words = ("W" * bool(left), "W" * bool(right))
    others = [
        f"{words[0]} {m} {words[1]}" for m in (mark.replace(*SAME_APOSTROPHE), "")
    ]
    return list(dict.fromkeys([*own_keys(left, mark, right), *others]))


def known_sides(marks: Mapping[str, int], keys: Iterable[str]) -> int:
    """Returns the sides by the first key that is known."""
    return next((marks[key] for key in keys if key in marks), BOTH)


@functools.lru_cache(1 << 16)
def runs_of(word: str) -> list[Run]:
    """Returns the runs of a word, in order."""
    runs = []
    groups = itertools.groupby(
        _characters(word), key=lambda cluster: _class(cluster[0])
    )
    for kind, group in groups:
        characters = list(group)
        runs.append(Run(kind, characters, "".join(characters)))
    return runs


def _characters(text: str) -> list[str]:
    """Returns the grapheme clusters."""
    if text.isascii():
        return list(text)
    return [cluster for cluster, _ in _CLUSTERS.pre_tokenize_str(text)]


@functools.lru_cache(1 << 16)
def _class(character: str) -> str:
    """Returns the kind of a run."""
    if unicodedata.category(character)[0] not in "LNMC":
        return "M"
    name = unicodedata.name(character, "").partition(" ")[0]
    return "H" if name in _UNSPACED and character.isalpha() else ""


@functools.lru_cache(1 << 16)
def _kind(text: str) -> str:
    if not text or _class(text[0]) == "H":
        return "H" * bool(text)
    if text.isdecimal():
        return "N"
    return "I" if len(_characters(text)) == 1 and not text.islower() else "W"


def literal(text: str) -> str:
    """Returns the form of a run in a key: itself, or its kind where that is enough."""
    kind = _kind(text)
    return kind if kind in ("", *KINDS) else text.lower()
