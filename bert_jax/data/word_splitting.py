"""Splitting of a text into words as the words of tagged training data were split.

Training data have words, not the text that they are from. But they show which marks
(characters that are neither letters nor digits) are separated and which are attached:
`left` `.` but `J.`, `state-of-the-art` or `state` `-` `of`. The rule that `learn_rule`
takes from them is:

1. White space separates words.
2. A mark next to letters or digits is attached to its left, its right, both or neither,
   as it mostly is in training before the same letters (`'s`), or else between the same
   kinds: a word (W), a capital (I), a number (N), a script without spaces (H). One that
   training lacks is attached inside a word, and at its ends separated if most marks
   are. Equal marks belong together.
3. A script without spaces is split into the longest words of training, or else into
   characters. Where nearly all words of training are characters, every text is.

A character is a grapheme cluster, so a combining mark stays with its base. A run is a
part of a word: marks (M), letters of scripts without spaces (H), or other letters and
digits.
"""

import bisect
import collections
import functools
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenizers import PreTokenizedString, Regex, normalizers, pre_tokenizers

Rule = Mapping[str, Any]  # JSON

Spans = list[tuple[int, int]]  # the first character of each, and that after its last

SPACES: Rule = {}
CHARACTERS: Rule = {"characters": True}
PUNCTUATION: Rule = {"punctuation": True}  # `bert_words`
# The rule for a model saved without one, as in English treebanks.
_APART = ("W  ", "  W", "H  ", "  H", "H  H", "H  W", "W  H")
USUAL: Rule = {"marks": {**dict.fromkeys(_APART, 0), "I . ": 3, "W ' s": 1}}

_NEARLY_ALL = 0.99  # fraction of the words that are characters
_LEFT, _RIGHT, _BOTH = 2, 1, 3  # the sides that a mark is attached to, added up
_BERT_NORMALIZER = normalizers.BertNormalizer(strip_accents=False, lowercase=False)
_CLUSTERS = pre_tokenizers.Split(Regex(r"\X"), "isolated")
# The first words of their characters' names.
_UNSPACED = {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO"}
_UNSPACED |= {"IDEOGRAPHIC", "THAI", "LAO", "KHMER", "MYANMAR"}


def learn_rule(sentences: Iterable[Sequence[str]]) -> Rule:
    """Returns the rule by which these words were separated.

    Args:
      sentences: Words of each sentence.
    """
    texts = [[part for word in words for part in word.split()] for words in sentences]
    runs = [[_runs_of(word) for word in words] for words in texts]
    sizes = [len(_characters(word)) for words in texts for word in words]
    if sizes.count(1) >= _NEARLY_ALL * len(sizes) > 0:
        return CHARACTERS
    alone = {word[0] for words in runs for word in words if len(word) == 1}
    unspaced = (run for run in alone if _class(run[0]) == "H")
    return {
        "marks": _learn_sides(runs),
        "words": sorted(word for word in unspaced if len(word) > 1),
    }


def _learn_sides(sentences: list[list[list[str]]]) -> dict[str, int]:
    """Returns the usual sides of marks by `_keys`, but where a general key has them."""
    counts: dict[str, Counter[int]] = collections.defaultdict(Counter)
    general: dict[str, Sequence[str]] = {}
    observed = itertools.chain.from_iterable(map(_observe_marks, sentences))
    for left, mark, right, sides in observed:
        keys = _keys(left, mark, right)
        for index, key in enumerate(keys):
            counts[key][sides] += 1
            general[key] = keys[index + 1 :]
    counts.pop("W  W", None)  # whether any mark between words is apart says little
    learned: dict[str, int] = {}
    for key in sorted(counts, key=lambda key: len(general[key])):
        sides, _ = max(counts[key].items(), key=lambda item: item[::-1])
        if sides != _known_sides(learned, general[key]):
            learned[key] = sides
    return learned


def _observe_marks(words: list[list[str]]) -> Iterator[tuple[str, str, str, int]]:
    """Yields each mark with the text on its left and right, and its attached sides."""
    runs = [(n, run) for n, word in enumerate(words) for run in word]
    nothing = (-1, "")
    around = zip([nothing, *runs], runs, [*runs[1:], nothing], strict=False)
    for (before, first), (word, mark), (after, last) in around:
        if _class(mark[0]) == "M":
            left, right = _drop_mark(first), _drop_mark(last)
            if left and right:
                sides = _LEFT * (before == word) + _RIGHT * (word == after)
                yield left, mark, right, sides
            if left and word != after:  # white space may follow
                yield left, mark, "", _BOTH * (before == word)
            if right and before != word:
                yield "", mark, right, _BOTH * (word == after)


def _drop_mark(run: str) -> str:
    return run if run and _class(run[0]) != "M" else ""


class WordSplitter:
    """Applies a rule to texts."""

    def __init__(self, rule: Rule):
        """Takes a rule from `learn_rule`, or one of SPACES, CHARACTERS and USUAL."""
        self._marks: Mapping[str, int] = rule.get("marks", {})
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
        parts = [part for run in _runs_of(chunk) for part in self._parts(run)]
        beside = ["", *map(_drop_mark, parts), ""]
        joins = [False] * (len(parts) + 1)  # a part to the one before it
        for index, part in enumerate(parts):
            left, letters, right = beside[index : index + 3]
            if not letters:
                sides = _known_sides(self._marks, _keys(left, part, right))
                joins[index] |= bool(left and sides & _LEFT)
                joins[index + 1] |= bool(right and sides & _RIGHT)
        words: list[str] = []
        for part, joined in zip(parts, joins, strict=False):
            words.append(words.pop() + part if joined else part)
        return words

    def _parts(self, run: str) -> Iterator[str]:
        """Yields words of a script without spaces, or equal marks."""
        characters = _characters(run)
        if not _class(run[0]):
            yield run
        elif _class(run[0]) == "M":
            for _, equal in itertools.groupby(characters):
                yield "".join(equal)
        else:
            while characters:
                longest = min(len(characters), self._longest)
                sizes = range(longest, 1, -1)
                known = (n for n in sizes if "".join(characters[:n]) in self._words)
                size = next(known, 1)
                yield "".join(characters[:size])
                characters = characters[size:]


def bert_words(text: str) -> Spans:
    """Returns the words of a text by BERT's rule: every punctuation mark is one, and
    every Chinese character."""
    words = PreTokenizedString(text)
    words.normalize(_BERT_NORMALIZER.normalize)
    pre_tokenizers.BertPreTokenizer().pre_tokenize(words)
    return [span for _, span, _ in words.get_splits("original", "char")]


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


def _keys(left: str, mark: str, right: str) -> list[str]:
    """Returns the keys that the sides of a mark may have, the most specific one first.

    Each has the kind on its left, the mark, and what is on its right: the letters, or
    in the next key their kind. The last one is for any mark.
    """
    before, after = _kind(left), _kind(right)
    mark = mark.replace("\u2019", "'")  # the typographic apostrophe
    keys = [f"{before} {mark} {right.lower()}"] if after == "W" else []
    spaced = str.maketrans("IN", "WW")
    keys += [f"{before} {mark} {after}", f"{before}  {after}".translate(spaced)]
    return keys


def _known_sides(marks: Mapping[str, int], keys: Iterable[str]) -> int:
    """Returns the sides by the first key that is known."""
    return next((marks[key] for key in keys if key in marks), _BOTH)


@functools.lru_cache(1 << 16)
def _runs_of(word: str) -> list[str]:
    """Returns the runs of a word, in order."""
    groups = itertools.groupby(_characters(word), lambda cluster: _class(cluster[0]))
    return ["".join(group) for _, group in groups]


def _characters(text: str) -> list[str]:
    """Returns the grapheme clusters."""
    if text.isascii():
        return list(text)
    return [cluster for cluster, _ in _CLUSTERS.pre_tokenize_str(text)]


@functools.lru_cache(1 << 16)
def _class(character: str) -> str:
    """Returns the kind of its run: M, H, or nothing for other letters and digits."""
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
