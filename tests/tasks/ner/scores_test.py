"""Entity scores equal conlleval's (and, where conlleval knows nothing, seqeval's)."""

import itertools
import random
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.tasks.ner.scores import (
    Entity,
    entity_scores,
    find_entities,
    is_tag,
    tag_accuracy,
)

# Pairs of a tag and the next one between which conlleval sees an end or a beginning,
# where both are of one type. It knows neither S nor an E before a B.
ENDS = {"BB", "BO", "IB", "IO", "EE", "EI", "EO"}
BEGINS = {"BB", "IB", "OB", "OI", "EE", "EI", "OE"}
BRACKETS = ("[", "]")
BILOU = str.maketrans("ES", "LU")


def conlleval(gold, guessed):
    """Returns the script's counts: correctly tagged tokens, entities that there are,
    that were found, and that are right.

    It goes through all words once, in the state of "so far, the entity that began in
    both is the same". A sentence's end is a word that is O in both.
    """

    def parse(tag):
        prefix, _, kind = tag.partition("-")
        return prefix, kind

    def ends(last, now):
        other_type = last[0] not in ("O", ".") and last[1] != now[1]
        return last[0] + now[0] in ENDS or other_type or last[0] in BRACKETS

    def begins(last, now):
        other_type = now[0] not in ("O", ".") and last[1] != now[1]
        return last[0] + now[0] in BEGINS or other_type or now[0] in BRACKETS

    tags = there = found = right = 0
    same = False
    last_gold = last_guess = ("O", "")
    for gold_tags, guessed_tags in zip(gold, guessed, strict=True):
        words = [*zip(gold_tags, guessed_tags, strict=True), None]
        for word in words:
            gold_now, guess_now = (parse(t) for t in word or ("O", "O"))
            gold_ends = ends(last_gold, gold_now)
            guess_ends = ends(last_guess, guess_now)
            if same and gold_ends and guess_ends and last_gold[1] == last_guess[1]:
                same = False
                right += 1
            elif same and (gold_ends != guess_ends or gold_now[1] != guess_now[1]):
                same = False
            gold_begins = begins(last_gold, gold_now)
            guess_begins = begins(last_guess, guess_now)
            if gold_begins and guess_begins and gold_now[1] == guess_now[1]:
                same = True
            there += gold_begins
            found += guess_begins
            tags += word is not None and gold_now == guess_now
            last_gold, last_guess = gold_now, guess_now
    return tags, there, found, right + same


def expected(gold, guessed):
    tags, there, found, right = conlleval(gold, guessed)
    precision = 100 * right / found if found else 0.0
    recall = 100 * right / there if there else 0.0
    both = precision + recall
    f1 = 2 * precision * recall / both if both else 0.0
    accuracy = 100 * tags / sum(map(len, gold))
    return [precision, recall, f1, accuracy]


def check(gold, guessed):
    scores = entity_scores(gold, guessed)
    ours = [scores["precision"], scores["recall"], scores["f1"]]
    ours = [100 * share for share in (*ours, tag_accuracy(gold, guessed))]
    pairs = zip(ours, expected(gold, guessed), strict=True)
    assert all(abs(one - other) <= 1e-9 for one, other in pairs), (gold, guessed)


def tag_set(prefixes, types=("PER", "LOC", "a-b", "")):
    return ["O", *(f"{p}-{t}" if t else p for p in prefixes for t in types)]


def cases(prefixes, count, seed=0):
    """Texts of a few sentences. The guesses are the truth with some noise."""
    rng = random.Random(seed)
    tags = tag_set(prefixes)
    for _ in range(count):
        few = rng.sample(tags, rng.randint(1, len(tags)))
        noise = rng.random()
        gold = [
            rng.choices(few, k=rng.randint(1, 12)) for _ in range(rng.randint(1, 5))
        ]
        guessed = [
            [rng.choice(tags) if rng.random() < noise else t for t in g] for g in gold
        ]
        yield gold, guessed


# What the script itself (version 2004-01-26, in Perl) counted in `cases(prefixes,
# 1000)`, as one text: phrases, found, correct.
@pytest.mark.parametrize(
    ("prefixes", "counts"),
    [
        ("BI", (13920, 14840, 7552)),
        ("IE", (14046, 14781, 7573)),
        ("[]", (16781, 16830, 10251)),
    ],
)
def test_equal_to_conlleval(prefixes, counts):
    """IOB1, IOB2, IOE1, IOE2 and tags of no scheme."""
    texts = list(cases(prefixes, 1000))
    gold = [sentence for text, _ in texts for sentence in text]
    guessed = [sentence for _, text in texts for sentence in text]
    assert conlleval(gold, guessed)[1:] == counts
    check(gold, guessed)
    for text in texts:
        check(*text)


@pytest.mark.slow
def test_equal_to_conlleval_on_all_short_sentences():
    for length in (1, 2, 3):
        sentences = list(itertools.product(tag_set("BI", ("X", "Y")), repeat=length))
        for gold, guessed in itertools.product(sentences, repeat=2):
            check([gold], [guessed])


@pytest.mark.slow
def test_equal_to_seqeval():
    """BIOES, valid or not. (seqeval has no type "", and uses "_" instead.)"""
    metrics = pytest.importorskip("seqeval.metrics", reason="the parity extra")
    for gold, guessed in cases("BIES", 1500):
        for sentence in gold:
            entities = metrics.sequence_labeling.get_entities(sentence)
            theirs = [(x.strip("_"), start, last + 1) for x, start, last in entities]
            assert find_entities(sentence) == theirs
            bilou = [tag[0].translate(BILOU) + tag[1:] for tag in sentence]
            assert find_entities(bilou) == theirs
        with warnings.catch_warnings():  # nothing found, or nothing there
            warnings.simplefilter("ignore")
            names = ("precision", "recall", "f1")
            scores = (getattr(metrics, f"{name}_score") for name in names)
            theirs = [score(gold, guessed, zero_division=0) for score in scores]
        assert [*entity_scores(gold, guessed).values()] == pytest.approx(theirs)


@st.composite
def drawn(draw):
    """Entities of a sentence, none overlapping, and its length."""
    found, place = [], 0
    for size, gap, kind in draw(
        st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.sampled_from("XY")))
    ):
        found.append(Entity(kind, place + gap, place + gap + size))
        place += gap + size
    return found, place + draw(st.integers(0, 3))


def write_tags(found, length, scheme):
    """A sentence's tags in a scheme, from its definition."""
    tags = ["O"] * length
    for index, (kind, start, end) in enumerate(found):
        marks = ["I"] * (end - start)
        touches = index > 0 and found[index - 1].end == start
        if scheme == "IOB2" or (
            scheme == "IOB1" and touches and found[index - 1].type == kind
        ):
            marks[0] = "B"
        if scheme in ("BIOES", "BILOU"):
            single, last = ("S", "E") if scheme == "BIOES" else ("U", "L")
            marks = [single] if len(marks) == 1 else ["B", *marks[1:-1], last]
        tags[start:end] = [f"{mark}-{kind}" for mark in marks]
    return tags


@pytest.mark.slow
@given(drawn(), st.sampled_from(["IOB1", "IOB2", "BIOES", "BILOU"]))
@settings(max_examples=300, deadline=None)
def test_entities_come_back_from_every_scheme(sentence, scheme):
    found, length = sentence
    assert find_entities(write_tags(found, length, scheme)) == found


def test_words_are_compared_one_by_one():
    assert tag_accuracy([["O", "B-X"], ["O"]], [["O", "I-X"], ["O"]]) == 2 / 3
    with pytest.raises(ValueError, match="1 tags for 2 words"):
        entity_scores([["O", "O"]], [["O"]])


def test_scores_of_nothing_there_and_nothing_found():
    zeros = {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert entity_scores([["O"]], [["O"]]) == zeros
    assert entity_scores([["B-X"]], [["O"]]) == zeros
    assert entity_scores([["O"]], [["B-X"]]) == zeros


def test_tags_have_the_prefix_of_an_entity():
    assert all(map(is_tag, ("O", "B-PER", "L-a-b", "I", "[-NP", "U-X")))
    assert not any(map(is_tag, ("NN", "PER", "b-PER", "", "BPER", "PER-B")))
