"""Entities in tag sequences, and their precision, recall and F1, as in conlleval.

conlleval is the script of the CoNLL shared tasks since 2000, here version 2004-01-26.
It reads IOB1, IOB2, IOE1 and IOE2 and accepts invalid sequences: an I after O, or after
another type, starts an entity. It predates BIOES and BILOU. For those, as in seqeval,
an S is a whole entity and nothing continues an entity after E.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

# B, I, E: first, inner and last word of an entity. S: its only word.
_KINDS = {"O": "O", "B": "B", "I": "I", "E": "E", "S": "S"}
_KINDS |= {"L": "E", "U": "S", "[": "S", "]": "S"}  # BILOU, and conlleval's brackets


class Entity(NamedTuple):
    """An entity of a sentence."""

    type: str  # the tags' name after the prefix
    start: int  # its first word
    end: int  # the word after its last


def is_tag(tag: str) -> bool:
    """Returns whether a tag is O or has an entity prefix, such as `B-PER`.

    A prefix alone counts too, with type "".
    """
    return tag.partition("-")[0] in _KINDS


def find_entities(tags: Iterable[str]) -> list[Entity]:
    """Returns the entities of a sentence, in order.

    Args:
      tags: Tags for which `is_tag` holds.

    Raises:
      KeyError: `is_tag` does not hold for a tag.
    """
    spans = []
    start = 0
    before, type_before = "O", ""
    for index, tag in enumerate((*tags, "O")):
        prefix, _, type_ = tag.partition("-")
        kind = _KINDS[prefix]
        begins = kind in "BS" or before in "OES" or type_ != type_before
        if before != "O" and (begins or kind == "O"):
            spans.append(Entity(type_before, start, index))
        if begins:
            start = index
        before, type_before = kind, type_
    return spans


def entity_scores(
    gold: Sequence[Sequence[str]], guessed: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Returns `precision`, `recall` and `f1` over all entities, as fractions of 1.

    An entity is right if its type and its words are. conlleval prints the same figures
    in percent. A division by 0 gives 0.

    Args:
      gold: Tags of each sentence.
      guessed: Predicted tags, in the same shape.
    """
    expected = predicted = right = 0
    for gold_tags, guessed_tags in zip(gold, guessed, strict=True):
        if len(gold_tags) != len(guessed_tags):
            raise ValueError(f"{len(guessed_tags)} tags for {len(gold_tags)} words")
        true, guesses = set(find_entities(gold_tags)), set(find_entities(guessed_tags))
        expected += len(true)
        predicted += len(guesses)
        right += len(true & guesses)
    precision = right / predicted if predicted else 0.0
    recall = right / expected if expected else 0.0
    both = precision + recall
    f1 = 2 * precision * recall / both if both else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}


def tag_accuracy(
    gold: Sequence[Sequence[str]], guessed: Sequence[Sequence[str]]
) -> float:
    """Returns the fraction of words in all sentences whose tag is correct."""
    pairs = [
        (a, b)
        for gold_tags, guessed_tags in zip(gold, guessed, strict=True)
        for a, b in zip(gold_tags, guessed_tags, strict=True)
    ]
    return sum(a == b for a, b in pairs) / len(pairs)
