"""A cloze test of held-out sentences: one whole word is masked, four are offered.

    python -m experiments.english.cloze --init_from=runs/english-mini [--items=200] \
        [--output=cloze.json] [--config.FIELD=VALUE ...]

The sentences are of the documents that the run held out, equally many of each kind of
text. A rule chooses them, the word and the other three. All four are of one stretch of
the words ordered by their counts in the training text, so how often a word is tells
nothing. Shown beside the model: the most frequent of the four, and the same model with
random values.
"""

import itertools
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int
from ml_collections import ConfigDict
from scipy import stats
from tokenizers import Tokenizer

from bert_jax.data.run_data import RunData
from bert_jax.data.vocabulary import keyed_hash
from bert_jax.errors import UserError
from bert_jax.runtime import terminal
from bert_jax.tasks.fill_mask import FillMask
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training import inference
from experiments.english import held_out
from experiments.english.held_out import HeldOut
from experiments.lib import command_line, ending, kept, report

WORDS = (8, 30)  # of a sentence
# Words are taken from these places in the order of counts: no function words, and none
# that the model has hardly seen.
RANKS = (100, 4000)
CHOICES = 4
# All four are of one stretch of so many places. (Around the right word it would be in
# their middle: rarely the most frequent, never told by chance alone.)
STRETCH = 12
_LETTERS = 3  # of the shortest word
_LENGTH = 128  # pieces of the longest sentence, marks included
_BATCH = 32
MODEL, RANDOM, FREQUENT = "model", "random values", "most frequent word"


class Item(NamedTuple):
    """A sentence with a gap.

    Attributes:
      text: with [MASK] in the gap.
      choices: the right word first.
      ids: of the choices.
    """

    kind: str
    text: str
    choices: tuple[str, ...]
    ids: tuple[int, ...]


@ending.printed
def main(argv: Sequence[str]) -> str:
    """Makes the test and takes it; gives the text of the table."""
    parser = command_line.Parser("experiments.english.cloze", __doc__)
    parser.add_argument("--init_from", required=True, help="a run or a model folder")
    parser.add_argument("--items", default=200, type=int)
    parser.add_argument("--output", type=Path, help="a file of JSON to write")
    options, fields = command_line.with_fields(parser, argv)
    command_line.check_counts(options, "items")
    with held_out.opened(options.init_from, fields) as (task, model):
        held = held_out.read(task, options.init_from)
        data = RunData(task.config, task.tokenizer)
        counts = data.of(task.config.corpus.max_seq_length).token_counts()
        items = make(task.config, held, task.tokenizer, counts, options.items)
        if not items:
            raise UserError(
                f"{options.init_from}: no held-out sentence of {WORDS[0]} to "
                f"{WORDS[1]} words has a word of the vocabulary's places {RANKS[0]} to "
                f"{RANKS[1]}, by count; hold out more text, or take a larger vocabulary"
            )
        random = nn.meta.unbox(task.init_params(jax.random.key(0)))
        usual = counts[np.array([item.ids for item in items])]
        chosen = {
            MODEL: choose(task, model.mesh, model.params, items),
            RANDOM: choose(task, model.mesh, random, items),
            FREQUENT: most_frequent(usual),
        }
    facts = report.facts("experiments.english.cloze", argv)
    results = {
        "facts": facts,
        "items": [
            item._asdict() | {name: int(found[n]) for name, found in chosen.items()}
            for n, item in enumerate(items)
        ],
    }
    if options.output:
        kept.write(options.output, results)
    return text(items, chosen, facts)


def make(
    config: ConfigDict,
    held: HeldOut,
    tokenizer: Tokenizer,
    counts: Int[np.ndarray, " vocab"],
    count: int,
) -> list[Item]:
    """The items, as many of each kind as there are, up to `count` in all.

    Args:
      config: of the run; `corpus.seed` and `corpus.language` matter.
      counts: of each id in the training text.
    """
    language, seed = config.corpus.language, config.corpus.seed
    texts = {k: list(held_out.sentences(held, k, language)) for k in held.kinds}
    whole = {
        word
        for sentences in texts.values()
        for sentence in sentences
        for word in _words(sentence, tokenizer)
    }
    ranked = _ranked(tokenizer, counts, whole)
    places = {word: place for place, word in enumerate(ranked)}
    each = -(-count // max(1, len(texts)))
    longest = min(_LENGTH, config.model.max_position_embeddings)
    found: list[list[Item]] = []
    for kind, sentences in texts.items():
        order = sorted(
            range(len(sentences)), key=lambda number: keyed_hash(seed, kind, number)
        )
        drawn = (
            _item(kind, sentences[number], tokenizer, places, seed, number, longest)
            for number in order
        )
        found.append(list(itertools.islice(filter(None, drawn), each)))
    # By turns, so that `count` items have as many of each kind.
    turns = itertools.zip_longest(*found)
    return [item for turn in turns for item in turn if item is not None][:count]


def _words(sentence: str, tokenizer: Tokenizer) -> list[str]:
    """What stands between spaces, in lower case where the model reads it so."""
    rule = tokenizer.normalizer
    return [rule.normalize_str(w) if rule else w for w in sentence.split()]


def _ranked(
    tokenizer: Tokenizer, counts: Int[np.ndarray, " vocab"], whole: Set[str]
) -> list[str]:
    """The words that are one piece, the most frequent first.

    Args:
      whole: words of the text. Other pieces only begin longer words, and a model that
        knows this would never choose them.
    """
    pieces = tokenizer.get_vocab()
    words = [p for p in pieces if len(p) >= _LETTERS and p.isalpha() and p in whole]
    return sorted(words, key=lambda word: (-int(counts[pieces[word]]), word))


def _item(
    kind: str,
    sentence: str,
    tokenizer: Tokenizer,
    places: Mapping[str, int],
    seed: int,
    number: int,
    longest: int,
) -> Item | None:
    """The sentence as an item; None if it has no word that will do.

    Args:
      places: of the words that are one piece, by count.
      longest: pieces that the model reads.
    """
    words = sentence.split()
    if not WORDS[0] <= len(words) <= WORDS[1] or "[" in sentence:
        return None
    ranked = list(places)
    usual = _words(sentence, tokenizer)
    if len(tokenizer.encode(sentence).ids) > longest:
        return None
    fits = [
        place
        for place, word in enumerate(usual)
        if RANKS[0] <= places.get(word, -1) < min(RANKS[1], len(ranked))
    ]
    if not fits:
        return None
    gap = fits[int(keyed_hash(seed, f"gap {kind}", number) * len(fits))]
    right = places[usual[gap]]
    first = right - right % STRETCH
    near = [
        place
        for place in range(first, min(first + STRETCH, len(ranked)))
        if ranked[place] not in usual
    ]
    near.sort(key=lambda place: keyed_hash(seed, f"{kind} {number}", place))
    if len(near) < CHOICES - 1:
        return None
    choices = (usual[gap], *(ranked[place] for place in near[: CHOICES - 1]))
    with_gap = " ".join([*words[:gap], "[MASK]", *words[gap + 1 :]])
    pieces = tokenizer.get_vocab()
    return Item(kind, with_gap, choices, tuple(pieces[word] for word in choices))


def most_frequent(
    counts: Int[np.ndarray, "items choices"],
) -> Int[np.ndarray, " items"]:
    """The choice with the largest count; equal ones win equally often."""
    return np.argmax(counts + np.random.default_rng(0).random(counts.shape), axis=1)


def choose(
    task: Pretraining, mesh: Mesh, params: Any, items: Sequence[Item]
) -> Int[np.ndarray, " items"]:
    """Which choice each item's mask is likeliest to be; 0 is right."""
    chosen = np.zeros(len(items), int)
    config = task.config.copy_and_resolve_references()
    config.predict.top_k = task.tokenizer.get_vocab_size()  # ranks the choices too
    asker = FillMask(config, task.model, task.tokenizer, judges_pairs=False)
    size = inference.batch_size(mesh, _BATCH, task.model_config.hidden_size)
    ask = inference.compile_predict(asker.step, params, mesh, size)
    rows = asker.encode([asker.parse({"text": item.text}) for item in items], size)
    for batch, places in zip(rows.batches, rows.places or (), strict=True):
        for ranked, (number, _) in zip(ask(batch)["ids"][:, 0], places, strict=True):
            ids = items[number].ids
            chosen[number] = ids.index(next(i for i in ranked if i in ids))
    return chosen


def text(
    items: Sequence[Item],
    chosen: Mapping[str, Int[np.ndarray, " items"]],
    facts: Mapping[str, Any],
) -> str:
    """The share of right answers by kind, and a few items."""
    kinds = list(dict.fromkeys(item.kind for item in items))
    rows = []
    for kind in (*kinds, ""):
        own = [n for n, item in enumerate(items) if kind in ("", item.kind)]
        shares = (_share(found[own] == 0) for found in chosen.values())
        rows.append((kind or "all", str(len(own)), *shares))
    shown = "\n".join(
        f"  {item.text}\n    {', '.join(item.choices)} -> "
        f"{item.choices[chosen[MODEL][n]]}"
        for n, item in enumerate(items[:4])
    )
    about = report.listed(facts)
    return (
        f"{terminal.table(rows, ('cloze', 'items', *chosen))}\n\nright answers in "
        "percent and their 95% interval (Wilson); a guess is right in 25\n\n"
        f"the first items, the right word first\n{shown}\n\n{about}"
    )


def _share(right: np.ndarray) -> str:
    found = stats.binomtest(int(np.sum(right)), len(right))
    low, high = found.proportion_ci(method="wilson")
    return f"{100 * np.mean(right):.1f} ({100 * low:.1f} to {100 * high:.1f})"


if __name__ == "__main__":
    ending.start(main)
