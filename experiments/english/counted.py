"""Weights to start pre-training from, whose word embeddings are counted, not random.

    python -m experiments.english.counted --config=configs/english.py:size=mini \
        --output=counted [--config.FIELD=VALUE ...]
    python -m bert_jax.main --config=configs/english.py:size=mini \
        --config.init_from=counted --workdir=runs/english-mini

Pieces that stand beside the same pieces get similar vectors. The script counts how
often each two pieces are near each other in the training pairs: up to five pieces
apart, and 1/d at a distance of d. Of the positive pointwise mutual information of the
counts it takes the `hidden_size` largest singular vectors (Levy, Goldberg and Dagan
2015, section 3: contexts smoothed by a power of 0.75, singular values by 0.5). They are
centred, turned at random, so that every unit has the same share, and made of length
`initializer_range` times the root of `hidden_size`. The output bias of the masked LM is
the log of a piece's frequency. All other parameters are as `config.seed` draws them.

Every pair counts once, whatever `corpus.weights`. The counts take some 60 bytes for
each two pieces that ever stand near each other: for 16,000 pieces 15 GB at most.
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
from experiments import by_size, command_line, ending

MODULE = "experiments.english.counted"
_WINDOW = 5  # pieces on each side
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
    task = tasks.create(config)
    tokenizer = task.tokenizer
    longest = max(phase.max_seq_length for phase in phases(config))
    data = RunData(config, tokenizer).of(longest)
    params = nn.meta.unbox(task.init_params(jax.random.key(config.seed)))
    params = jax.tree.map(np.array, params)
    table = params["bert"]["embeddings"]["word_embeddings"]["embedding"]
    pieces, hidden = table.shape
    seen, vectors = factors(information(near(pairs_of(data), pieces)), hidden)
    if seen.sum() <= hidden:
        raise UserError(
            f"{data.folder}: {seen.sum()} pieces stand beside others, too few for "
            f"vectors of {hidden}; more text is required"
        )
    turn = np.linalg.qr(np.random.default_rng(config.seed).normal(size=[hidden] * 2))[0]
    table[seen] = config.model.initializer_range * hidden**0.5 * vectors @ turn
    counts = data.token_counts() + 1
    bias = params["masked_lm"]["bias"]
    bias[:] = -np.log(counts.sum())  # spare rows, which no piece has
    bias[: len(counts)] = np.log(counts / counts.sum())
    weights = Weights(task.model_config, params, "BertForPreTraining")
    facts = {"step": 0, "config": config.to_dict()}
    facts["counted"] = by_size.facts(MODULE, argv)
    export.export(weights, tokenizer, options.output, facts)
    return (
        f"{options.output}: {seen.sum():,} of {pieces:,} word embeddings are counted, "
        "the others random"
    )


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, ConfigDict]:
    """The options, and the config of the pre-training."""
    parser = command_line.Parser(MODULE)
    parser.add_argument("--config", required=True, help="of the pre-training")
    parser.add_argument("--output", required=True, type=Path, help="a folder to write")
    options, fields = command_line.with_fields(parser, argv)
    if options.output.parts[:1] == ("gs:",):
        raise UserError(f"--output={options.output}: a local folder is required")
    options.output = options.output.absolute()
    config = configuration.load(options.config, fields)
    is_bert = config.task.name == "pretraining" and config.model.architecture == "bert"
    if not is_bert or config.task.objective != "mlm":
        raise UserError(f"--config={options.config}: a BERT's pre-training is required")
    if config.init_from:
        raise UserError(
            f"config.init_from={config.init_from}: these weights start anew; leave it "
            "empty"
        )
    config.model.scan_layers = False  # exports have each layer by itself
    return options, config


def pairs_of(data: Prepared) -> Iterator[records.Pairs]:
    """The training pairs, many at a time."""
    files = sorted(map(str, data.folder.glob("*-train.array_record-*")))
    source = ArrayRecordDataSource(files)
    for begin in range(0, len(source), _RECORDS):
        some = range(begin, min(begin + _RECORDS, len(source)))
        yield records.parse(source.__getitems__(list(some)))


def near(pairs: Iterable[records.Pairs], pieces: int) -> csr_array:
    """How often each two pieces are near each other: 1/d for a distance of d.

    A and B of a pair count apart: B may be of another document.

    Returns:
      [pieces, pieces], float64.
    """
    total = csr_array((pieces, pieces))
    for some in pairs:
        parts = some.lengths.ravel()
        part = np.repeat(np.arange(len(parts)), parts)
        for distance in range(1, _WINDOW + 1):
            same = part[distance:] == part[:-distance]
            places = some.tokens[:-distance][same], some.tokens[distance:][same]
            weights = np.full(len(places[0]), 1 / distance)
            total += csr_array((weights, places), (pieces, pieces))
    return total + total.T


def information(near: csr_array) -> csr_array:
    """The pointwise mutual information of pieces and contexts, where it is positive.

    Args:
      near: as `near` returns it.
    """
    found = near.tocoo()
    often = near.sum(axis=1)
    contexts = often**_SMOOTHING
    share = found.data / often[found.row]
    values = np.log(share * contexts.sum() / contexts[found.col])
    positive = values > 0
    places = found.row[positive], found.col[positive]
    return csr_array((values[positive], places), near.shape)


def factors(
    matrix: csr_array, width: int
) -> tuple[Bool[np.ndarray, " rows"], Float[np.ndarray, "seen width"]]:
    """The rows that are not empty, and their left singular vectors by the square roots
    of their values; centred, each of length 1.

    They are the same in each run, but where singular values are equal. Where too few
    rows have a number there are none.
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
