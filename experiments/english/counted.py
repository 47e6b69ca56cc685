"""Weights to start pre-training from, whose word embeddings are counted, not random.

    python -m experiments.english.counted --config=configs/english.py:size=mini \
        --output=counted [--config.FIELD=VALUE ...]
    python -m bert_jax.main --config=configs/english.py:size=mini \
        --config.init_from=counted --workdir=runs/english-mini

Pieces that stand beside the same pieces get similar vectors. The script counts how
often each two pieces are near each other in the training text: up to five pieces apart,
and 1/d at a distance of d. Of the positive pointwise mutual information of the counts
it takes the `hidden_size` largest singular vectors (Levy, Goldberg and Dagan 2015,
section 3: contexts smoothed by a power of 0.75, singular values by 0.5). They are
centred, turned at random, so that every unit has the same share, and as long as random
embeddings. The output bias of the masked LM is the log of a piece's frequency. All
other parameters are as `config.seed` draws them.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import flax.linen as nn
import jax
import numpy as np
import scipy.sparse.linalg
from array_record.python.array_record_data_source import ArrayRecordDataSource
from jaxtyping import Bool, Float
from ml_collections import ConfigDict
from scipy.sparse import csr_array

from bert_jax import tasks
from bert_jax.config import configuration
from bert_jax.config.phases import phases
from bert_jax.convert import export
from bert_jax.convert.layout import Weights
from bert_jax.data import records
from bert_jax.data.prepare import Prepared
from bert_jax.data.run_data import RunData
from bert_jax.errors import UserError
from experiments import by_size, ending

MODULE = "experiments.english.counted"
WINDOW = 5  # pieces on each side
_SMOOTHING = 0.75  # of contexts' frequencies
_RECORDS = 16_384  # pairs that are counted at a time


def main(argv: Sequence[str]) -> int:
    """Gives the exit status."""
    return ending.printed(lambda: run(argv))


def run(argv: Sequence[str]) -> str:
    """Writes the folder; gives a line.

    Raises:
      UserError: not a config of BERT's pre-training; too little text; the output folder
        has other files; see `prepare.prepare`.
    """
    options, config = parse(argv)
    export.check_target(options.output)
    found = RunData(config, None)
    data = found.of(max(phase.max_seq_length for phase in phases(config)))
    task = tasks.create(config, found.tokenizer)
    params = nn.meta.unbox(task.init_params(jax.random.key(config.seed)))
    params = jax.tree.map(np.array, params)
    table = params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    pieces, hidden = table.shape
    seen, vectors = factors(information(counts(pairs(data), pieces)), hidden)
    if seen.sum() <= hidden:
        raise UserError(
            f"{data.folder}: {seen.sum()} pieces stand beside others, too few for "
            f"vectors of {hidden}; more text is required"
        )
    turn = np.linalg.qr(np.random.default_rng(config.seed).normal(size=[hidden] * 2))[0]
    table[seen] = config.model.initializer_range * hidden**0.5 * vectors @ turn
    often = data.token_counts() + 1
    params["masked_lm"]["bias"][: len(often)] = np.log(often / often.sum())
    weights = Weights(task.model_config, params, "BertForPreTraining")
    facts = {"counted": by_size.facts(MODULE, argv) | {"config": config.to_dict()}}
    export.export(weights, found.tokenizer, options.output, facts)
    return (
        f"{options.output}: {seen.sum():,} of {pieces:,} word embeddings are counted, "
        "the others random"
    )


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, ConfigDict]:
    """The options, and the config of the pre-training."""
    parser = argparse.ArgumentParser(prog=MODULE, allow_abbrev=False)
    parser.add_argument("--config", required=True, help="of the pre-training")
    parser.add_argument("--output", required=True, type=Path, help="a folder to write")
    options, fields = parser.parse_known_args(argv)
    options.output = options.output.absolute()
    config = configuration.load(options.config, fields)
    if config.task.name != "pretraining" or config.model.architecture != "bert":
        raise UserError(f"--config={options.config}: a BERT's pre-training is required")
    config.model.scan_layers = False  # exports have each layer by itself
    return options, config


def pairs(data: Prepared) -> Iterator[records.Pairs]:
    """The training pairs, many at a time."""
    files = sorted(map(str, data.folder.glob("*-train.array_record-*")))
    source = ArrayRecordDataSource(files)
    for begin in range(0, len(source), _RECORDS):
        some = range(begin, min(begin + _RECORDS, len(source)))
        yield records.parse(source.__getitems__(list(some)))


def counts(pairs: Iterable[records.Pairs], pieces: int) -> csr_array:
    """How often each two pieces are near each other: 1/d for a distance of d.

    A and B of a pair count apart: B may be of another document.
    """
    total = csr_array((pieces, pieces))
    for some in pairs:
        parts = some.lengths.ravel()
        part = np.repeat(np.arange(len(parts)), parts)
        for distance in range(1, WINDOW + 1):
            near = part[distance:] == part[:-distance]
            places = some.tokens[:-distance][near], some.tokens[distance:][near]
            weights = np.full(len(places[0]), 1 / distance)
            total += csr_array((weights, places), (pieces, pieces))
    return total + total.T


def information(counts: csr_array) -> csr_array:
    """The pointwise mutual information of pieces and contexts, where it is positive."""
    found = counts.tocoo()
    often = counts.sum(axis=1)
    contexts = often**_SMOOTHING
    own = found.data / often[found.row]
    values = np.log(own * contexts.sum() / contexts[found.col])
    positive = values > 0
    places = found.row[positive], found.col[positive]
    return csr_array((values[positive], places), counts.shape)


def factors(
    matrix: csr_array, width: int
) -> tuple[Bool[np.ndarray, " rows"], Float[np.ndarray, "seen width"]]:
    """The rows that are not empty, and their left singular vectors by the square roots
    of their values; centred, each of length 1.

    They are the same in each run. Where too few rows have a number there are none.
    """
    seen = np.diff(matrix.indptr) > 0
    if seen.sum() <= width:
        return seen, np.zeros((seen.sum(), width))
    left, values, _ = scipy.sparse.linalg.svds(matrix, width, rng=0)
    # A vector's sign is arbitrary: the largest number becomes positive.
    left *= np.sign(left[np.abs(left).argmax(axis=0), np.arange(width)])
    found = (left * values**0.5)[seen]
    found -= found.mean(axis=0)
    return seen, found / np.linalg.norm(found, axis=1, keepdims=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
