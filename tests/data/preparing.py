"""A small corpus, its preparation, and the files written."""

import random
from pathlib import Path

import numpy as np

from bert_jax.config import configuration
from bert_jax.data import loader
from bert_jax.data.table import Table
from configs import tiny

WORDS = ["time", "year", "people", "way", "day", "man", "thing", "life", "world"]
LENGTH = 32


def write_corpus(path, documents=12, sentences=20):
    """Documents of which each sentence begins with the document's own word."""
    rng = random.Random(0)
    with open(path, "w") as file:
        for number in range(documents):
            for _ in range(sentences):
                words = rng.choices(WORDS, k=rng.randint(3, 9))
                file.write(f"document{number} {' '.join(words)}.\n")
            file.write("\n")
    return path


def make_config(folder, **changes):
    config = configuration.with_defaults()
    config.corpus.sources = (f"sentences:{folder}/corpus.txt",)
    config.corpus.data_dir = str(folder / "data")
    config.corpus.dev_fraction = 0.1
    config.tokenizer.vocab_size = 300
    config.update_from_flattened_dict(changes)
    return config


def of_corpus(corpus, folder):
    """Makes the config of short rows of a corpus, with a small vocabulary."""
    config = tiny.get_config("plain")
    config.corpus.sources = (f"sentences:{corpus}",)
    config.corpus.data_dir = str(folder)
    config.corpus.update(max_seq_length=32, dev_fraction=0.2)
    config.tokenizer.vocab_size = 60
    config.train.update(batch_size=16, num_steps=100)
    config.evaluate.batch_size = 16
    return config


def names(folder):
    """Returns the names in a folder, sorted."""
    return sorted(path.name for path in Path(folder).iterdir())


def prepared(config, length=LENGTH):
    """Prepares a config's data for rows of a length."""
    return loader.RunData(config, None).prepare_length(length)


def made(config, length=LENGTH):
    """Prepares a config's data and returns the folder."""
    return prepared(config, length).folder


def contents(folder):
    """Returns the content of each file of a folder, by its name."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def read(folder, split):
    """Reads the rows of a split as (tokens_a, tokens_b, is_random_next)."""
    tokens, size_a, is_random_next = map(
        Table.open(Path(folder) / split).get, ("tokens", "size_a", "is_random_next")
    )
    rows = np.split(tokens.values, tokens.ends[:-1])
    columns = zip(rows, size_a.values, is_random_next.values, strict=True)
    return [(row[:size], row[size:], bool(random)) for row, size, random in columns]


def same(one, two):
    """Whether two batches are equal, types included."""
    return one.keys() == two.keys() and all(
        one[name].dtype == two[name].dtype and np.array_equal(one[name], two[name])
        for name in one
    )
