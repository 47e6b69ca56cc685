"""Entities in sequences of tags; precision, recall and F1 as conlleval counts them.

conlleval is the script of the CoNLL shared tasks since 2000, in its version of
2004-01-26. It knows IOB1, IOB2, IOE1 and IOE2 and takes invalid sequences as they come:
an I after O, or after another type, begins an entity. BIOES and BILOU are younger; here
an S is an entity of its own and nothing continues one after E, as in seqeval.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

# B, I and E: first, inner and last word of several; S: the only one.
_KINDS = {"O": "O", "B": "B", "I": "I", "E": "E", "S": "S"}
_KINDS |= {"L": "E", "U": "S", "[": "S", "]": "S"}  # BILOU; brackets, as in conlleval


class Entity(NamedTuple):
    type: str
    start: int  # its first word
    end: int  # the one after its last


def is_tag(tag: str) -> bool:
    """Whether a tag is O, or says by its beginning where in an entity its word stands:
    `B-PER`; a prefix alone is one too, of the type ""."""
    return tag.partition("-")[0] in _KINDS


def entities(tags: Iterable[str]) -> list[Entity]:
    """The entities of a sentence, in their order.

    Args:
      tags: all with `is_tag`; KeyError otherwise.
    """
    found = []
    start = 0
    before, type_before = "O", ""
    for index, tag in enumerate((*tags, "O")):
        prefix, _, type_ = tag.partition("-")
        kind = _KINDS[prefix]
        begins = kind in "BS" or before in "OES" or type_ != type_before
        if before != "O" and (begins or kind == "O"):
            found.append(Entity(type_before, start, index))
        if begins:
            start = index
        before, type_before = kind, type_
    return found


def entity_scores(
    gold: Sequence[Sequence[str]], guessed: Sequence[Sequence[str]]
) -> dict[str, float]:
    """`precision`, `recall` and `f1` over all entities, as shares of 1.

    An entity is right where its type and its words are. conlleval prints the same
    figures in percent. What would be divided by 0 is 0.

    Args:
      gold: tags of each sentence.
      guessed: as many.
    """
    wanted = found = right = 0
    for gold_tags, guessed_tags in zip(gold, guessed, strict=True):
        if len(gold_tags) != len(guessed_tags):
            raise ValueError(f"{len(guessed_tags)} tags for {len(gold_tags)} words")
        there, given = set(entities(gold_tags)), set(entities(guessed_tags))
        wanted += len(there)
        found += len(given)
        right += len(there & given)
    precision = right / found if found else 0.0
    recall = right / wanted if wanted else 0.0
    both = precision + recall
    f1 = 2 * precision * recall / both if both else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}


def tag_accuracy(
    gold: Sequence[Sequence[str]], guessed: Sequence[Sequence[str]]
) -> float:
    """The share of words, over all sentences, whose tag is right."""
    pairs = [
        (a, b)
        for gold_tags, guessed_tags in zip(gold, guessed, strict=True)
        for a, b in zip(gold_tags, guessed_tags, strict=True)
    ]
    return sum(a == b for a, b in pairs) / len(pairs)
