"""Vectors of words for a bag of words: gensim's word2vec, trained on a corpus.

    python -m experiments.cbow.vectors --corpus=SOURCES --output=FOLDER [--words=N] \
        [--cased]

writes FOLDER/vocab.txt, BERT's special tokens and the words by frequency, and
FOLDER/vectors.npy, a row for each. Words are what BERT cuts text into before it looks
for pieces. Needs the senses extra (gensim).
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert_jax import tokenization
from bert_jax.runtime.storage import make_folder, write_atomically
from experiments.insight import word2vec
from experiments.lib import command_line, ending


@ending.command
def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    parser = command_line.Parser("experiments.cbow.vectors", __doc__)
    parser.add_argument("--corpus", required=True, help="sources, between commas")
    parser.add_argument("--output", required=True, type=Path, help="a folder")
    parser.add_argument(
        "--words", type=int, default=0, help="to read in all epochs; 0: the whole text"
    )
    parser.add_argument("--cased", action="store_true", help="keeps upper case")
    parser.add_argument(
        "--data_dir", type=Path, default=Path("data"), help="for texts that are fetched"
    )
    options = parser.parse_args(argv)
    sources = tuple(filter(None, options.corpus.split(",")))
    rule = tokenization.build(["[UNK]"], lowercase=not options.cased)
    make_folder(options.output)
    make_folder(options.data_dir)
    found = word2vec.trained(sources, rule, options.data_dir, options.words)
    # Numbers of mean square 1, as random vectors have: no system learns faster for it.
    vectors = found.vectors / np.sqrt(np.mean(np.square(found.vectors)))
    special = tokenization.SPECIAL_TOKENS
    words = [word for word in found.index_to_key if word not in special]
    rows = [vectors[found.key_to_index[word]] for word in words]
    file = io.BytesIO()
    np.save(file, np.concatenate([np.zeros((len(special), found.vector_size)), rows]))
    write_atomically(options.output / "vectors.npy", file.getvalue())
    text = "".join(f"{word}\n" for word in (*special, *words))
    write_atomically(options.output / "vocab.txt", text)
    print(f"{len(words):,} words with vectors of {found.vector_size}: {options.output}")
    return 0


if __name__ == "__main__":
    ending.start(main)
