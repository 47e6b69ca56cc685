"""What the clean-up finds of what was planted, what else it takes, and how fast it is.

    python -m experiments.speed.cleaning --data=DATA [--other='FILES.txt']

DATA is a folder of data sets (corpus/english, corpus/wikitext-2, glue, squad, korean).
The text is articles, textbooks, government pages and conversation, without duplicates.
Planted are: 200 documents again (in capitals, or with other line breaks), 400 with a
share of their words replaced, 300 sentences of GLUE's and SQuAD's dev files amid a
paragraph, 200 Korean documents, documents of `--other` languages, 200 headings of
WikiText without their marks, 60 of what web pages say of themselves, 100 items of lists
and 100 documents of 10 to 39 words. Copies stand after their originals."""

import argparse
import glob
import gzip
import json
import os
import random
import re
import shlex
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from datetime import date
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.data import chunks, overlap, prepare, workers
from bert_jax.data.cleaning import cleaned, settings
from bert_jax.data.lines import read_lines
from configs import common
from experiments.lib.report import processor

MODULE = "experiments.speed.cleaning"
FILES = ("02-textbooks-1", "05-encyclopedia-2", "07-government", "08-conversation")
AGAINST = ("glue/*/dev*.tsv", "squad/dev-v1.1.json")
ITEMS = ("-", "*", "\u2022", "3.", "(b)")
PHRASES = (
    "Please enable JavaScript in your browser to view this page.",
    "By continuing to browse this site you agree to our use of cookies.",
    "Read our privacy policy and the terms of use before you sign up.",
)
WORDS = 13


class Planted(NamedTuple):
    """A corpus with known faults."""

    texts: list[str]
    documents: dict[int, str]  # planted ones: the stage that should take them
    # Planted paragraphs: (document, paragraph) -> the stage.
    paragraphs: dict[tuple[int, int], str]
    similar: dict[int, float]  # Jaccard similarity of changed copies


def read(data: Path) -> list[str]:
    """The texts of FILES, in their order."""
    found = []
    for name in FILES:
        path = data / "corpus" / "english" / f"{name}.jsonl.gz"
        with gzip.open(path, "rt", encoding="utf-8") as file:
            found += [json.loads(line)["text"] for line in file]
    return found


def plant(data: Path, others: str) -> Planted:
    """Plants into a copy of the corpus, and at its end."""
    rng = random.Random(0)
    texts = read(data)
    own = rng.sample(range(len(texts)), 900)
    made: list[tuple[str, str, float]] = []  # text, stage, similarity
    for number in own[:200]:
        text = texts[number]
        copied = text.upper() if rng.random() < 0.5 else re.sub(r"\n\n", "\n", text)
        made.append((copied, "exact_duplicates", 1.0))
    for number in own[200:600]:
        changed = _changed(rng, texts[number], rng.choice([0.005, 0.01, 0.02, 0.05]))
        likeness = jaccard(texts[number], changed)
        stage = "near_duplicates" if likeness >= 0.8 else ""
        if overlap.words(texts[number]) == overlap.words(changed):  # none was drawn
            stage = "exact_duplicates"
        made.append((changed, stage, likeness))
    made += [(text, "language", 0.0) for text in _foreign(data, others, rng)]
    for number in own[600:700]:
        words = texts[number].split()[: rng.randint(10, 39)]
        made.append((f"{' '.join(words)}.", "min_length", 0.0))
    found, marks = _paragraphs(data, texts, own[700:900], rng)
    return Planted(
        [*found, *(text for text, _, _ in made)],
        {number: its[1] for number, its in enumerate(made, len(texts)) if its[1]},
        marks,
        {n: its[2] for n, its in enumerate(made, len(texts)) if 0 < its[2] < 1},
    )


def _changed(rng: random.Random, text: str, share: float) -> str:
    words = re.split(r"(\s+)", text)
    vocabulary = [word for word in words if word.strip()]
    return "".join(
        rng.choice(vocabulary) if word.strip() and rng.random() < share else word
        for word in words
    )


def jaccard(one: str, other: str) -> float:
    """Of the sets of five words in a row, in lower case without punctuation."""
    sets = []
    for text in (one, other):
        words = overlap.words(text).split()
        sets.append({tuple(words[i : i + 5]) for i in range(len(words) - 4)})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def _foreign(data: Path, others: str, rng: random.Random) -> Iterator[str]:
    with gzip.open(data / "korean" / "KorQuAD_v1.0_dev.json.gz", "rt") as file:
        articles = json.load(file)["data"]
    contexts = [p["context"] for article in articles for p in article["paragraphs"]]
    yield from rng.sample(contexts, 200)
    every = {Path(path).read_text("utf-8") for path in glob.glob(others)}
    for words in map(str.split, sorted(every)):
        for start in range(0, len(words) - 200, 200):
            yield " ".join(words[start : start + 200])


def _paragraphs(
    data: Path, texts: list[str], numbers: list[int], rng: random.Random
) -> tuple[list[str], dict[tuple[int, int], str]]:
    """Plants paragraphs into some of the documents."""
    lines = (data / "corpus/wikitext-2/valid.txt").read_text("utf-8").splitlines()
    headings = [line.strip(" =") for line in lines if re.match(r" = .* = $", line)]
    ends = [text.rpartition("\n\n")[2] for text in texts[:1000]]
    sentences = rng.sample(sorted(evaluation_texts(data)), 300)
    planted = [
        *((heading, "headings") for heading in rng.sample(headings, 200)),
        *((rng.choice(PHRASES), "boilerplate") for _ in range(60)),
        *((f"{rng.choice(ITEMS)} {rng.choice(ends)}", "lists") for _ in range(100)),
        *((f"So it is said: {text}. That is all.", "overlap") for text in sentences),
    ]
    into: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for one in planted:
        into[rng.choice(numbers)].append(one)
    found, marks = list(texts), {}
    for number, some in into.items():
        parts = [(part, "") for part in texts[number].split("\n\n")]
        for one in some:
            parts.insert(rng.randint(0, len(parts)), one)
        found[number] = "\n\n".join(part for part, _ in parts)
        for place, (_, stage) in enumerate(parts):
            if stage:
                marks[number, place] = stage
    return found, marks


def evaluation_texts(data: Path) -> set[str]:
    """Fields of GLUE's dev tables and SQuAD's contexts, of 13 words or more."""
    found = set()
    for path in sorted(data.glob(AGAINST[0])):
        for line in path.read_text("utf-8").splitlines():
            found.update(line.split("\t"))
    squad = json.loads((data / AGAINST[1]).read_text("utf-8"))["data"]
    contexts = [p["context"] for article in squad for p in article["paragraphs"]]
    found.update(s for text in contexts for s in re.split(r"(?<=[.!?]) ", text))
    found = {text for text in found if "(ROOT" not in text and "( " not in text}
    return {text for text in found if len(overlap.words(text).split()) >= WORDS}


def make_config(folder: Path, data: Path, *stages: str) -> ConfigDict:
    config = common.get_config()
    config.corpus.sources = (f"jsonl:{folder}/text.jsonl",)
    config.corpus.data_dir = str(folder)
    config.corpus.clean = stages
    if "overlap" in stages:
        config.corpus.clean_against = tuple(f"{data}/{pattern}" for pattern in AGAINST)
    config.tokenizer.vocab_file = f"{data}/vocab/bert-base-uncased-vocab.txt"
    return config


def verdicts(config: ConfigDict) -> Iterator[tuple[int, int | None, str]]:
    """(document, paragraph or None for all of it, stage) of what was taken."""
    taken = read_lines(cleaned.clean(config) / "taken.txt.gz")
    for number, (_, verdict) in enumerate(taken):
        for part in verdict.split():
            stage, colon, places = part.partition(":")
            for place in places.split(",") if colon else ():
                yield number, int(place), stage
            if not colon:
                yield number, None, stage


def judge(
    stage: str, planted: Planted, config: ConfigDict, most: int
) -> tuple[str, list[str]]:
    """A line of the table, and at most so many of what else it took, and missed.

    Copies are planted for the stage of near duplicates too, where they are exact.
    """
    wanted: set[tuple[int, int | None]] = {
        place for place, own in planted.paragraphs.items() if own == stage
    }
    alike = ("exact_duplicates", "near_duplicates")
    own = alike if stage == "near_duplicates" else (stage,)
    wanted |= {(n, None) for n, its in planted.documents.items() if its in own}
    took = {(number, place) for number, place, _ in verdicts(config)}
    found, other = wanted & took, took - wanted
    line = f"{stage:17}{len(wanted):8}{len(found):7}{len(other):7}"
    line += f"{len(found) / len(wanted):9.1%}" if wanted else "        -"
    line += f"{len(found) / len(took):11.1%}" if took else "          -"
    shown = []
    for name, keys in (("other", other), ("missed", wanted - took)):
        texts = [described(planted, *key) for key in ordered(keys)]
        chosen = random.Random(0).sample(texts, min(most, len(texts)))
        shown += [f"{stage}, {name}: {text}" for text in chosen]
    return line, shown


def ordered(keys: set[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    return sorted(keys, key=lambda key: (key[0], -1 if key[1] is None else key[1]))


def described(planted: Planted, number: int, place: int | None) -> str:
    """The beginning of a document or paragraph; of a changed copy its similarity."""
    text = planted.texts[number]
    if place is not None:
        text = text.split("\n\n")[place]
    found = repr(" ".join(text.split())[:90])
    if place is None and number in planted.similar:
        found += f" (similarity {planted.similar[number]:.3f})"
    return found


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds of processor time, of the workers too: the machine may be shared."""
    before = sum(os.times()[:4])
    work()
    return sum(os.times()[:4]) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--other", default="", help="texts in other languages, UTF-8")
    parser.add_argument("--shown", type=int, default=5, help="of each stage's mistakes")
    args = parser.parse_args()
    planted = plant(args.data, args.other)
    size = sum(len(text.encode()) for text in planted.texts) / 1e6
    print(f"$ python -m {MODULE} {shlex.join(sys.argv[1:])}")
    print(f"{date.today()}, {processor()}, {workers.cores()} cores")
    print(f"{len(planted.texts):,} documents, {size:.1f} MB\n")
    print("stage             planted  found  other   recall  precision  MB/s a core")
    mistakes = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = (json.dumps({"text": text}) + "\n" for text in planted.texts)
        (folder / "text.jsonl").write_text("".join(rows))
        with open(folder / "log", "w") as log, redirect_stderr(log):
            for stage in settings.STAGES:
                config = make_config(folder, args.data, stage)
                speed = size / seconds_of(partial(cleaned.clean, config))
                line, some = judge(stage, planted, config, args.shown)
                print(f"{line}{speed:13.2f}", flush=True)
                mistakes += some
            every = make_config(folder, args.data, *settings.STAGES)
            speed = size / seconds_of(partial(cleaned.clean, every))
            print(f"{'all of them':59}{speed:13.2f}")
            for title, config in (
                ("sentence pairs, without clean-up", make_config(folder, args.data)),
                ("sentence pairs of what is left", every),
            ):
                speed = size / seconds_of(partial(prepare.prepare, config, 128))
                print(f"{title:59}{speed:13.2f}")
            kept = sum(1 for _ in chunks.documents(every))
    print(f"\nall of them leave {kept:,} documents\n")
    print("\n".join(mistakes))


if __name__ == "__main__":
    main()
