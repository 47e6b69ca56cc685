"""Splitting of a text into words as the words of tagged training data were split.

Training data have words, not the text that they are from. But they show which marks
(characters that are neither letters nor digits) are separated and which are attached:
`left` `.` but `U.S.`, `state-of-the-art`, `John` `'s` but `O'Neill`, `l'` `eau`. The
rule that `learn_rule` takes from them is:

1. White space separates words.
2. A mark next to letters or digits is attached to its left, its right, both or neither,
   as it mostly is in training next to the same letters (`mr.`, `'s`), or else next to
   their kind: a word (W), a capital (I), a number (N), a script without spaces (H).
   A mark that training lacks is attached inside a word, and at its ends separated if
   most marks are.
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
# The rule for a model saved without one, as in English treebanks.
USUAL: Rule = {"marks": {"W  ": 0, "  W": 0, "I . ": 3, "W ' s": 1}}

_NEARLY_ALL = 0.99  # fraction of the words that are characters
_LEFT, _RIGHT, _BOTH = 2, 1, 3  # the sides that a mark is attached to, added up
_MAX_MARKS = 8  # different marks that belong together
# The typographic apostrophe, and a typewriter's.
_SAME_APOSTROPHE = ("\u2019", "'")
_APOSTROPHE = re.compile(r"[^\W\d_]+['\u2019][^\W\d_]+")  # inside a word
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
        "marks": _learn_sides(runs) | _learn_groups(runs),
        "endings": _learn_endings(texts),
        "words": sorted(word for word in unspaced if len(word) > 1),
    }


def _learn_sides(sentences: list[list[list[str]]]) -> dict[str, int]:
    """Returns the usual sides of marks by `_keys`, unless a more general key has them.

    The most specific key counts every occurrence, the others each different one. So
    many words after the same one, as in `SOCCER - ...`, count once.
    """
    counts: dict[str, Counter[int]] = collections.defaultdict(Counter)
    general: dict[str, tuple[str, ...]] = {}
    observed = itertools.chain.from_iterable(map(_observed, sentences))
    different = Counter((tuple(_keys(*around)), sides) for *around, sides in observed)
    for (keys, sides), count in different.items():
        for index, key in enumerate(keys):
            if key != "W  W":  # whether any mark between words is apart says little
                counts[key][sides] += 1 if index else count
                general[key] = keys[index + 1 :]
    alone = sorted({word[0] for s in sentences for word in s if _is_marks(word)})
    learned = {key: 0 for mark in alone for key in (f"W {mark} ", f" {mark} W")}
    for key in sorted(counts, key=lambda key: len(general[key])):
        sides, count = max(counts[key].items(), key=lambda item: item[::-1])
        has_letters = not {*key.split(" ")[::2]} <= {"", *"WINH"}
        is_known = count > 1 or not has_letters
        is_new = sides != _known_sides(learned, general[key])
        if key not in learned and is_known and is_new:
            learned[key] = sides
    return learned


def _observed(words: list[list[str]]) -> Iterator[tuple[str, str, str, int]]:
    """Yields each mark with the text on its left and right, and its attached sides."""
    runs = [(n, run) for n, word in enumerate(words) for run in word]
    nothing = (-1, "")
    around = zip([nothing, *runs], runs, [*runs[1:], nothing], strict=False)
    for (before, first), (word, mark), (after, last) in around:
        if _is_marks([mark]):
            left, right = _without_marks(first), _without_marks(last)
            if left and right:
                sides = _LEFT * (before == word) + _RIGHT * (word == after)
                yield left, mark, right, sides
            if left and word != after:  # white space may follow
                yield left, mark, "", _BOTH * (before == word)
            if right and before != word:
                yield "", mark, right, _BOTH * (word == after)


def _learn_groups(sentences: list[list[list[str]]]) -> dict[str, int]:
    """Returns which marks next to each other belong together, and which are words.

    Equal ones belong together, unless they are known not to.
    """
    whole: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    for words in sentences:
        whole.update(run for word in words for run in word if _is_marks([run]))
        for are_marks, group in itertools.groupby(words, key=_is_marks):
            texts = [word[0] for word in group] if are_marks else []
            for begin, end in itertools.combinations(range(len(texts) + 1), 2):
                if 1 < end - begin <= _MAX_MARKS:
                    apart["".join(texts[begin:end])] += 1
    groups = {}
    for text in whole | apart:
        if len(set(text)) > 1 and whole[text] > apart[text]:
            groups[f" {text} "] = _BOTH
        elif len(text) == 2 and text[0] == text[1] and apart[text] > whole[text]:
            groups[f" {text} "] = 0
    return groups


def _learn_endings(sentences: list[list[str]]) -> dict[str, int]:
    """Returns where a word such as `n't` begins in `don't`.

    It begins with a letter, has an apostrophe, and never begins a sentence.
    """
    first = {words[0].lower() for words in sentences if words}
    pairs = Counter(
        (before.lower(), word.lower().replace(*_SAME_APOSTROPHE))
        for words in sentences
        for before, word in itertools.pairwise(words)
        if _APOSTROPHE.fullmatch(word)
    )
    return {
        before + word: len(before)
        for (before, word), count in pairs.items()
        if count > 1 and word not in first
    }


def _is_marks(word: list[str]) -> bool:
    return len(word) == 1 and _class(word[0][0]) == "M"


def _without_marks(run: str) -> str:
    return run if run and _class(run[0]) != "M" else ""


class WordSplitter:
    """Applies a rule to texts."""

    def __init__(self, rule: Rule):
        """Takes a rule from `learn_rule`, or one of SPACES, CHARACTERS and USUAL."""
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
        for match in _APOSTROPHE.finditer(chunk) if self._endings else ():
            if size := self._endings.get(
                match.group().lower().replace(*_SAME_APOSTROPHE)
            ):
                end = match.start() + size
                return [*self._split(chunk[:end]), *self._split(chunk[end:])]
        parts = [part for run in _runs_of(chunk) for part in self._parts(run)]
        beside = ["", *map(_without_marks, parts), ""]
        joins = [False] * (len(parts) + 1)  # a part to the one before it
        for index, part in enumerate(parts):
            left, letters, right = beside[index : index + 3]
            if not letters:
                sides = self._sides(left, part, right)
                joins[index] |= bool(left and sides & _LEFT)
                joins[index + 1] |= bool(right and sides & _RIGHT)
        words: list[str] = []
        for part, joined in zip(parts, joins, strict=False):
            words.append(words.pop() + part if joined else part)
        return words

    def _sides(self, left: str, mark: str, right: str) -> int:
        keys = _keys(left, mark, right)
        is_known = any(key in self._marks for key in keys[:-2])
        if is_known or not (left and right) or "H" not in (_kind(left), _kind(right)):
            return _known_sides(self._marks, keys)
        # Where there are no spaces, a mark between words is like one at their ends.
        to_left = _LEFT & _known_sides(self._marks, _keys(left, mark, ""))
        return to_left | _RIGHT & _known_sides(self._marks, _keys("", mark, right))

    def _parts(self, run: str) -> Iterator[str]:
        """Yields words of a script without spaces, or marks that belong together."""
        kind, rest = _class(run[0]), _characters(run)
        while rest:
            size = self._size(kind, rest) if kind else len(rest)
            yield "".join(rest[:size])
            rest = rest[size:]

    def _size(self, kind: str, rest: list[str]) -> int:
        """Returns how many of the first characters are a word, or belong together."""
        longest = self._longest if kind == "H" else _MAX_MARKS
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

    Each has what is on its left, the mark, and what is on its right. Capitals denote
    kinds. The last two are for any word, and for any word and any mark.
    """
    before, after = _literal(left), _literal(right)
    mark = mark.replace(*_SAME_APOSTROPHE)
    keys = [f"{before} {mark} {after}"]
    if left and right:
        keys += [f"{_kind(left)} {mark} {after}", f"{before} {mark} {_kind(right)}"]
    keys.append(f"{_kind(left)} {mark} {_kind(right)}")
    keys += [f"{'W' * bool(left)} {some} {'W' * bool(right)}" for some in (mark, "")]
    return list(dict.fromkeys(keys))


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


def _literal(text: str) -> str:
    """Returns the form of a run in a key: itself, or its kind where that is enough."""
    kind = _kind(text)
    return kind if kind in ("", "N", "H") else text.lower()
