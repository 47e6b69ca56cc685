"""ONNX Runtime behind the HTTP framework of `--mode=serve`, for `serving`.

    python -m experiments.speed.serving_sides FOLDER ROWS

FOLDER is that of `inference.make_model`; ROWS are computed together at most. Says
`serving on http://...` as the program does, and serves until SIGTERM.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.answering import Answering
from bert_jax.data.rows import BatchSize
from bert_jax.tasks.task import PredictFn, PredictionBatches, Predictor
from bert_jax.types import Arrays
from experiments.speed.inference_sides import LIMIT, onnx_session


class Classifier(Predictor):
    """Classifies rows by ONNX Runtime: encoded together, padded to the longest."""

    def __init__(self, folder: Path):
        from tokenizers import Tokenizer

        self._session = onnx_session(folder)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(LIMIT)
        self._tokenizer.enable_padding()

    def parse(self, row: dict[str, Any]) -> str:
        """Returns the text of a row."""
        return row["text"]

    def answer(
        self, parsed: Sequence[str], ask: PredictFn, size: BatchSize
    ) -> list[dict[str, Any]]:
        """Returns the answers to texts, as `--mode=predict` adds them to rows."""
        encodings = self._tokenizer.encode_batch(list(parsed))
        columns = [(e.ids, e.attention_mask, e.type_ids) for e in encodings]
        arrays = np.array(columns, np.int64).transpose(1, 0, 2)
        names = ("input_ids", "attention_mask", "token_type_ids")
        (logits,) = self._session.run(None, dict(zip(names, arrays, strict=True)))
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        return [answer_of(row) for row in powers / powers.sum(-1, keepdims=True)]

    def step(self, params: Any, batch: Arrays) -> Any:
        """Is not called: `answer` computes all."""
        raise NotImplementedError

    def encode(self, parsed: Sequence[Any], size: BatchSize) -> PredictionBatches:
        """Is not called: `answer` computes all."""
        raise NotImplementedError


def answer_of(probabilities: np.ndarray) -> dict[str, Any]:
    """Returns the label and the probability of each."""
    each = {f"LABEL_{n}": float(x) for n, x in enumerate(probabilities)}
    return {"label": f"LABEL_{probabilities.argmax()}", "probabilities": each}


def main(arguments: list[str]) -> None:
    from bert_jax.serving import server
    from bert_jax.serving.batching import Batcher

    if len(arguments) != 2:  # a person's; `serving` starts it
        sys.exit(__doc__)
    folder, rows = arguments
    size = BatchSize(int(rows), 1)  # batches as on a CPU
    model = Answering(Classifier(Path(folder)), lambda batch: {}, size)
    app = server.application(Batcher(model, None, LIMIT), {}, "127.0.0.1")
    listening = server.listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    print(f"serving on http://127.0.0.1:{port}", file=sys.stderr, flush=True)
    server.http_server(app, 1.0).run([listening])


if __name__ == "__main__":
    main(sys.argv[1:])
