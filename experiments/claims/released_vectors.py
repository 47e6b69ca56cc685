"""Vectors of a released folder of sentence-transformers, here and with other libraries.

    python -m experiments.claims.released_vectors --weights=FOLDER --pairs=FILE.csv

FILE.csv has two texts and their similarity in each row, without a header, as STS-B's
test set. The report has Spearman's correlation of the cosines with the similarities,
the largest difference of any number of a vector from sentence-transformers', a search
for the partners of the most similar pairs among all second texts, and the texts a
second of `sentences`, in turns: all first texts, and one of middling length. Needs
sentence-transformers, and the extra onnx for the exported graphs.
"""

import argparse
import contextlib
import csv
import functools
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from bert_jax import tokenization
from bert_jax.commands import command_line
from bert_jax.data.workers import available_cores
from bert_jax.runtime.terminal import format_table
from bert_jax.scores import retrieval
from experiments.speed import sides

MODULE = "experiments.claims.released_vectors"
PACKAGES = ("jax", "torch", "transformers", "sentence-transformers", "onnxruntime")
ONE = ", one text"
_BATCH = 32
_ALIKE = 4.8  # pairs of at least this similarity are looked for

Encode = Callable[[list[str]], np.ndarray]


def read_pairs(path: str) -> tuple[list[str], list[str], np.ndarray]:
    """Returns the first and the second texts, and their similarities."""
    with open(path, encoding="utf-8", newline="") as file:
        first, second, scores = zip(*csv.reader(file), strict=True)
    return list(first), list(second), np.array(scores, float)


def _ours(case: dict[str, Any]) -> Encode:
    import bert_jax

    return bert_jax.load(case["weights"]).sentences


def _theirs(case: dict[str, Any]) -> Encode:
    import sentence_transformers
    import torch

    torch.set_num_threads(available_cores())
    model = sentence_transformers.SentenceTransformer(case["weights"], device="cpu")
    return lambda texts: model.encode(texts, batch_size=_BATCH)


def _onnx(case: dict[str, Any], graph: str) -> Encode:
    """Returns the vectors of an exported graph. Its texts are sorted by length."""
    import onnxruntime

    import bert_jax

    model = bert_jax.load(case["weights"])
    folder = Path(case["temporary"], graph)
    model.save(folder, onnx="int8")
    tokenizer = model.tokenizer
    module = json.loads((folder / "sentence_bert_config.json").read_text())
    tokenizer.enable_truncation(module["max_seq_length"])
    tokenizer.enable_padding(pad_id=tokenization.special_ids(tokenizer).pad)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = available_cores()
    path = folder / "onnx" / f"{graph}.onnx"
    session = onnxruntime.InferenceSession(path, options)
    names = {each.name for each in session.get_inputs()}

    def encode(texts: list[str]) -> np.ndarray:
        order = np.argsort([len(text) for text in texts])
        parts = []
        for first in range(0, len(texts), _BATCH):
            some = [texts[i] for i in order[first : first + _BATCH]]
            found = tokenizer.encode_batch(some)
            columns = {
                "input_ids": np.array([x.ids for x in found]),
                "attention_mask": np.array([x.attention_mask for x in found]),
                "token_type_ids": np.array([x.type_ids for x in found]),
            }
            inputs = {name: columns[name] for name in names}
            parts.append(session.run(["sentence_embedding"], inputs)[0])
        vectors = np.concatenate(parts)
        return np.asarray(vectors[np.argsort(order)])

    return encode


_SIDES: dict[str, Callable[[dict[str, Any]], Encode]] = {
    "bert_jax": _ours,
    "sentence-transformers": _theirs,
    "ONNX Runtime": functools.partial(_onnx, graph="model"),
    "ONNX Runtime, int8": functools.partial(_onnx, graph="model_quantized"),
}


def prepare_sides(case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the sides of the case's library, which have answered once, and writes its
    vectors of all texts."""
    first, second, _ = read_pairs(case["pairs"])
    encode, name = _SIDES[case["library"]](case), case["library"]
    np.save(Path(case["temporary"], f"{name}.npy"), encode([*first, *second]))
    middling = [sorted(first, key=len)[len(first) // 2]]
    encode(middling)

    def side(texts: list[str]) -> Callable[[int], None]:
        def answer(times: int) -> None:
            for _ in range(times):
                encode(texts)

        return answer

    return {name: side(first), f"{name}{ONE}": side(middling)}, {}


def quality(
    vectors: np.ndarray, theirs: np.ndarray, scores: np.ndarray
) -> tuple[str, ...]:
    """Returns Spearman's correlation, the largest difference and the search's scores.

    Args:
      vectors: Vectors of all first texts, then of all second texts.
      theirs: Those of sentence-transformers.
    """
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    first, second = np.split(vectors, 2)
    spearman = stats.spearmanr((first * second).sum(axis=1), scores).statistic
    alike = np.flatnonzero(scores >= _ALIKE)
    judged = [{int(index): 1.0} for index in alike]
    found = retrieval.retrieval_scores(first[alike] @ second.T, judged)
    gap = f"{np.abs(vectors - theirs).max():.1e}"
    return f"{100 * spearman:.2f}", gap, f"{found['mrr@10']:.4f}"


def measure(args: argparse.Namespace, temporary: str) -> list[tuple[str, ...]]:
    """Returns a row for each library."""
    case = {"weights": args.weights, "pairs": args.pairs, "temporary": temporary}
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(sides.Process(MODULE, {**case, "library": library}))
            for library in _SIDES
        ]
        turns = {k: turn for each in opened for k, turn in each.turns().items()}
        found = sides.time_in_turns(turns, args.rounds, args.turn)
    first, _, scores = read_pairs(args.pairs)
    vectors = {name: np.load(Path(temporary, f"{name}.npy")) for name in _SIDES}
    theirs = vectors["sentence-transformers"]
    rows = []
    for name in _SIDES:
        many, one = found[name], found[f"{name}{ONE}"]
        speeds = (f"{len(first) / many['median']:.0f}", f"{1 / one['median']:.1f}")
        ratios = [
            f"{sides.times_as_fast(found[f'bert_jax{end}'], side):.2f}"
            for end, side in (("", many), (ONE, one))
        ]
        rows.append((name, *quality(vectors[name], theirs, scores), *speeds, *ratios))
    return rows


HEADER = (
    *("side", "100 x Spearman", "largest difference", "mrr@10"),
    *("texts/s", "one text at a time, texts/s", "ours / it", "ours / it, one text"),
)


@command_line.command
def main(argv: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    parser = command_line.Parser(MODULE, __doc__)
    parser.add_argument("--weights", required=True, help="a folder")
    parser.add_argument("--pairs", required=True, help="CSV")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn", type=float, default=2.0, help="least seconds of one")
    args = parser.parse_args(argv)
    sides.print_facts(MODULE, argv, PACKAGES)
    with tempfile.TemporaryDirectory() as temporary:
        print(format_table(measure(args, temporary), HEADER))
    return 0


if __name__ == "__main__":
    command_line.start(main)
