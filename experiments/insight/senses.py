"""Does a word in two senses get two vectors? A static table has one for both.

    python -m experiments.insight.senses --init_from=WEIGHTS --word=bank \
        --sentences=experiments/data/senses/bank.tsv --output=runs/senses [--plot] \
        [--text=jsonl:/data/*.jsonl.gz]

Each line of the sentences is SENSE, a tab, and a sentence with the word. For every
layer the word's vectors are compared: the mean cosine within a sense and between two,
and how often the nearest other sentence has the same sense, with a permutation test.
Beside it stand the model's own table of pieces, and word2vec trained on the text (by
default the run's own), which reads the other words. docs/insight.md says more.
"""

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

import bert_jax
from bert_jax.convert import weights
from bert_jax.data.lines import read_lines
from bert_jax.errors import UserError
from bert_jax.pretrained import Bert
from bert_jax.runtime import storage, terminal
from experiments.insight import sense_scores, word2vec
from experiments.lib import command_line, ending, kept, plots
from experiments.lib.vectors import Reader

TABLE, CONTEXT = "table of pieces", "word2vec, other words"
_HANGUL = "가-힣"  # particles follow a Korean word without a space: 사과를


class Use(NamedTuple):
    """A sentence with the word."""

    sense: str
    text: str
    word: tuple[int, int]  # its characters, [start, end)
    particle: int  # the end of what is written together with it


@ending.printed
def main(argv: Sequence[str]) -> str:
    """Writes OUTPUT/WORD.json, and with --plot OUTPUT/WORD.png; gives the table."""
    options = parse(argv)
    if options.plot:
        command_line.require("matplotlib", "report", "--plot needs matplotlib")
    uses = read(options.sentences, options.word)
    weights.check(options.init_from)
    if sources := text_sources(options):
        what = "word2vec needs gensim (--text= leaves it out)"
        command_line.require("gensim", "senses", what)
    bert = bert_jax.load(options.init_from)
    found = vectors(bert, uses, options.word)
    options.output.mkdir(parents=True, exist_ok=True)
    if sources:
        static = word2vec.trained(sources, bert.tokenizer, options.output)
        found[CONTEXT] = np.stack([_context(static, bert, use) for use in uses])
    senses = [use.sense for use in uses]
    scored = {name: sense_scores.scores(x, senses) for name, x in found.items()}
    results = {
        "command": {**vars(options), "output": str(options.output)},
        "sentences": dict(Counter(senses)),
        "chance": sense_scores.chance(senses),
        "permutations": sense_scores.PERMUTATIONS,
        "vectors": {name: scores._asdict() for name, scores in scored.items()},
    }
    path = options.output / f"{options.word}.json"
    if options.plot:
        figure = plots.scatter(_panels(found), senses)
        storage.write_atomically(path.with_suffix(".png"), plots.save(figure))
    kept.write(path, results)
    return table(results)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options.

    Raises:
      UserError: the word is not one word.
    """
    parser = command_line.Parser("experiments.insight.senses", __doc__)
    parser.add_argument("--init_from", required=True, help="a run, or a folder")
    parser.add_argument("--word", required=True)
    parser.add_argument("--sentences", required=True, help="SENSE, tab, sentence")
    parser.add_argument("--output", default="runs/senses", type=Path, help="folder")
    parser.add_argument(
        "--text", help="a source for word2vec, as in corpus.sources; empty: none"
    )
    parser.add_argument("--plot", action="store_true", help="OUTPUT/WORD.png")
    options = parser.parse_args(argv)
    if not re.fullmatch(r"\w+", options.word):
        raise UserError(f"--word={options.word!r}: must be one word, only letters")
    return options


def read(path: str, word: str) -> list[Use]:
    """The sentences, and where the word is in each.

    Raises:
      UserError: a line has no tab or not the word exactly once; there are fewer than
        two senses, or two sentences of each.
    """
    # A whole word; of a Korean one also what has particles.
    tail = f"[{_HANGUL}]*" if re.search(f"[{_HANGUL}]$", word) else ""
    pattern = re.compile(rf"\b({re.escape(word)}){tail}\b", re.IGNORECASE)
    uses = []
    for number, line in read_lines(path):
        if not line.strip():
            continue
        sense, tab, text = line.partition("\t")
        if not (tab and sense.strip() and text.strip()):
            raise UserError(f"{path}:{number}: write the sense, a tab and a sentence")
        places = list(pattern.finditer(text))
        if len(places) != 1:
            raise UserError(
                f"{path}:{number}: {word!r} must be in the sentence once, as a word of "
                f"its own; it is there {len(places)} times"
            )
        (place,) = places
        uses.append(Use(sense.strip(), text, place.span(1), place.end()))
    counts = Counter(use.sense for use in uses)
    if len(counts) < 2 or min(counts.values()) < 2:
        there = ", ".join(f"{sense}: {count}" for sense, count in counts.items())
        raise UserError(
            f"{path}: two senses or more are needed, with two sentences or more each; "
            f"there are {there or 'none'}"
        )
    return uses


def vectors(
    bert: Bert, uses: Sequence[Use], word: str
) -> dict[str, Float[np.ndarray, "sentences hidden"]]:
    """The word's vector in each sentence, the mean of its pieces', by layer.

    Returns:
      The static table's first, then of every hidden state.

    Raises:
      UserError: a word is beyond the model's last position.
    """
    states = Reader(bert, "pieces").read([{"text": use.text} for use in uses])
    embeddings = bert.params["bert"]["embeddings"]
    pieces = np.asarray(embeddings["word_embeddings"]["embedding"])
    still, found, names = [], [], Counter[str]()
    for use, vector in zip(uses, states, strict=True):
        encoding = bert.tokenizer.encode(use.text, add_special_tokens=False)
        start, end = use.word
        places = [
            place
            for place, (first, last) in enumerate(encoding.offsets)
            if first < end and last > start
        ]
        # [CLS] comes first, [SEP] last.
        if places[-1] + 2 >= len(vector):
            raise UserError(
                f"{word!r} is cut off, the model has "
                f"{bert.config.max_position_embeddings} positions: {use.text[:60]}..."
            )
        names[" ".join(encoding.tokens[place] for place in places)] += 1
        still.append(pieces[[encoding.ids[place] for place in places]].mean(axis=0))
        found.append(vector[[place + 1 for place in places]].mean(axis=0))
    shown = "; ".join(f"{name} ({count})" for name, count in names.most_common())
    terminal.say(f"{word} in pieces: {shown}")
    by_layer = np.stack(found, axis=1)
    layers = {f"layer {index}": layer for index, layer in enumerate(by_layer)}
    return {TABLE: np.stack(still), **layers}


def text_sources(options: argparse.Namespace) -> tuple[str, ...]:
    """What word2vec is trained on: --text, else the text of the run."""
    if options.text is not None:
        return (options.text,) if options.text else ()
    recorded = weights.recorded(options.init_from) or {}
    sources = tuple(recorded.get("corpus", {}).get("sources", ()))
    if not sources:
        terminal.say(f"{options.init_from} does not name its text: no word2vec")
    return sources


def _context(static: Any, bert: Bert, use: Use) -> np.ndarray:
    """The mean of word2vec's vectors of the sentence's other words."""
    before, after = use.text[: use.word[0]], use.text[use.particle :]
    tokenizer = bert.tokenizer
    others = word2vec.words(tokenizer, before) + word2vec.words(tokenizer, after)
    return word2vec.mean(static, others)


def _panels(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What is plotted: layer 0, the middle one, the last, and word2vec."""
    layers = [name for name in found if name not in (TABLE, CONTEXT)]
    names = [layers[0], layers[len(layers) // 2], layers[-1]]
    chosen = (name for name in (*names, CONTEXT) if name in found)
    return {name: principal(found[name]) for name in chosen}


def principal(
    vectors: Float[np.ndarray, "sentences size"],
) -> Float[np.ndarray, "sentences 2"]:
    """The two largest principal components; zeros where there are none."""
    centred = np.asarray(vectors, np.float64)
    centred = centred - centred.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    found = np.zeros((len(centred), 2))
    count = min(2, len(sizes))
    found[:, :count] = left[:, :count] * sizes[:count]
    return found


def table(results: dict[str, Any]) -> str:
    """The scores as text."""
    shown = ("within", "between", "nearest")
    lines = [
        (name, *(f"{scores[key]:.3f}" for key in shown), f"{scores['p']:.4f}")
        for name, scores in results["vectors"].items()
    ]
    header = ("vectors", *shown, "p")
    counts = ", ".join(f"{k}: {n}" for k, n in results["sentences"].items())
    return (
        f"{results['command']['word']} ({counts} sentences)\n\n"
        f"{terminal.table(lines, header)}\n\n"
        "within, between: mean cosine of two sentences of one sense, of two senses\n"
        "nearest: share of the sentences whose nearest other one has their sense; "
        f"chance: {results['chance']:.3f}\n"
        f"p: of {results['permutations']:,} random labellings, those that do as well"
    )


if __name__ == "__main__":
    ending.start(main)
