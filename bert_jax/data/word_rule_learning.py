"""Learning, from tagged training data, of how a text is split into such words.

See word_splitting.py, which applies the rule.
"""

import collections
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.data.word_splitting import (
    APOSTROPHE,
    BOTH,
    CHARACTERS,
    KINDS,
    LEFT,
    LONGEST_MARKS,
    RIGHT,
    SAME_APOSTROPHE,
    Rule,
    Run,
    known_sides,
    literal,
    mark_keys,
    own_keys,
    runs_of,
)

_NEARLY_ALL = 0.99  # fraction of the words


def learn(sentences: Iterable[Sequence[str]]) -> Rule:
    """Returns the rule by which these words were separated.

    Args:
      sentences: Words of each sentence.
    """
    texts = [[part for word in words for part in word.split()] for words in sentences]
    runs = [[runs_of(word) for word in words] for words in texts]
    sizes = [sum(len(run.characters) for run in word) for s in runs for word in s]
    if sizes.count(1) >= _NEARLY_ALL * len(sizes) > 0:
        return CHARACTERS
    unspaced = {w[0].text for s in runs for w in s if len(w) == 1 and w[0].kind == "H"}
    return {
        "marks": _beside(runs) | _together(runs),
        "endings": _endings(texts),
        "words": sorted(word for word in unspaced if len(word) > 1),
    }


def _beside(sentences: list[list[list[Run]]]) -> dict[str, int]:
    """Returns the sides of marks by `mark_keys`, unless a more general key has them."""
    evidence: dict[str, _Evidence] = collections.defaultdict(_Evidence)
    general: dict[str, list[str]] = {}
    for left, mark, right, sides in itertools.chain(*map(_observed, sentences)):
        own, keys = own_keys(left, mark, right), mark_keys(left, mark, right)
        evidence[own[0]].tokens[sides] += 1
        neighbors = literal(left), literal(right)
        for index, key in enumerate(own):
            evidence[key].neighbors[sides].add(neighbors)
            evidence[key].is_partial |= 0 < index < len(own) - 1
            general[key] = keys[index + 1 :]
    known = {
        key: sides
        for key in sorted(general, key=lambda key: len(general[key]))
        for sides in evidence[key].sides(key)
    }
    alone = sorted({w[0].text for words in sentences for w in words if _is_marks(w)})
    learned = {key: 0 for mark in alone for key in (f"W {mark} ", f" {mark} W")}
    learned |= {key: known[key] for key in known if len(general[key]) == 1}
    for begin, end in (("W ", " "), (" ", " W")):  # any mark after or before a word
        some = [learned[k] for k in learned if k.startswith(begin) and k.endswith(end)]
        if 2 * some.count(0) > len(some):
            learned[f"{begin}{end}"] = 0
    for key, sides in known.items():
        is_new = sides != known_sides(learned, general[key]) or "H" in key.split(" ")
        if key not in learned and is_new:
            learned[key] = sides
    return learned


class _Evidence:
    """Counts of the sides to which a mark was attached, for one key.

    Attributes:
      tokens: Counts by sides, where the key names all that matters.
      neighbors: Different letters on the left and on the right, by sides.
      is_partial: Whether the key names the letters on one side and the kind on the
        other.
    """

    def __init__(self) -> None:
        self.tokens: Counter[int] = Counter()
        self.neighbors: dict[int, set] = collections.defaultdict(set)
        self.is_partial = False

    def sides(self, key: str) -> list[int]:
        """Returns the usual sides, or an empty list if too little is known."""
        counts = self.tokens or self._varieties(key)
        best = max(counts, key=lambda sides: (counts[sides], sides))
        total = counts.total()
        has_letters = not {*key.split(" ")[::2]} <= {"", "W", "I", *KINDS}
        is_known = total > 1 or not has_letters
        if self.is_partial:
            is_known = total > 2 and counts[best] >= 0.75 * total
        return [best] if is_known else []

    def _varieties(self, key: str) -> Counter[int]:
        """Counts the neighbors, or where both sides vary, those on the side with fewer.

        So many words after one, as in `SOCCER - ...`, count once.
        """
        varying = [
            n for n, part in enumerate(key.split(" ")[::2]) if part in ("W", "I")
        ]
        return Counter(
            {
                sides: min(len({pair[n] for pair in pairs}) for n in varying)
                for sides, pairs in self.neighbors.items()
            }
        )


def _observed(words: list[list[Run]]) -> Iterator[tuple[str, str, str, int]]:
    """Yields each mark with the text on its left and right, and its attached sides."""
    runs = [(n, run) for n, word in enumerate(words) for run in word]
    nothing = (-1, Run("M", [], ""))
    around = zip([nothing, *runs], runs, [*runs[1:], nothing], strict=False)
    for (before, first), (word, mark), (after, last) in around:
        if mark.kind == "M":
            left = "" if first.kind == "M" else first.text
            right = "" if last.kind == "M" else last.text
            if left and right:
                sides = LEFT * (before == word) + RIGHT * (word == after)
                yield left, mark.text, right, sides
            if left and word != after:  # white space may follow
                yield left, mark.text, "", BOTH * (before == word)
            if right and before != word:
                yield "", mark.text, right, BOTH * (word == after)


def _together(sentences: list[list[list[Run]]]) -> dict[str, int]:
    """Returns which marks next to each other belong together, and which are words.

    Equal ones belong together, unless they are known not to.
    """
    whole: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    for words in sentences:
        whole.update(run.text for word in words for run in word if run.kind == "M")
        for are_marks, group in itertools.groupby(words, key=_is_marks):
            texts = [word[0].text for word in group] if are_marks else []
            for begin, end in itertools.combinations(range(len(texts) + 1), 2):
                if 1 < end - begin <= LONGEST_MARKS:
                    apart["".join(texts[begin:end])] += 1
    equal = {f" {text} ": 0 for text in apart if _is_double(text, apart, whole)}
    return equal | {
        f" {text} ": BOTH
        for text, count in whole.items()
        if len(set(text)) > 1 and count > apart[text]
    }


def _is_double(text: str, apart: Counter[str], whole: Counter[str]) -> bool:
    return len(text) == 2 and text[0] == text[1] and apart[text] > whole[text]


def _endings(sentences: list[list[str]]) -> dict[str, int]:
    """Returns where a word such as `n't` begins in `don't`.

    It begins with a letter, has an apostrophe, and never begins a sentence.
    """
    first = {words[0].lower() for words in sentences if words}
    pairs = Counter(
        (before.lower(), word.lower().replace(*SAME_APOSTROPHE))
        for words in sentences
        for before, word in itertools.pairwise(words)
        if APOSTROPHE.fullmatch(word)
    )
    return {
        before + word: len(before)
        for (before, word), count in pairs.items()
        if count > 1 and word not in first
    }


def _is_marks(word: list[Run]) -> bool:
    return len(word) == 1 and word[0].kind == "M"
