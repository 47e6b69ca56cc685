"""ONNX Runtime behind the HTTP framework of `--mode=serve`, for `serving`.

    python -m experiments.speed.serving_sides FOLDER ROWS

FOLDER is that of `inference.make_model`; ROWS are computed together at most. Says
`serving on http://...` as the program does, and serves until standard input ends.
"""

import json
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from experiments.speed.inference_sides import LIMIT, onnx_session


def classifier(folder: Path) -> Callable[[Sequence[Any]], list[str]]:
    """The rows' answers as JSON: encoded together, padded to the longest."""
    from tokenizers import Tokenizer

    session = onnx_session(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LIMIT)
    tokenizer.enable_padding()
    names = ("input_ids", "attention_mask", "token_type_ids")

    def compute(rows: Sequence[dict[str, Any]]) -> list[str]:
        encodings = tokenizer.encode_batch([row["text"] for row in rows])
        columns = [(e.ids, e.attention_mask, e.type_ids) for e in encodings]
        arrays = np.array(columns, np.int64).transpose(1, 0, 2)
        (logits,) = session.run(None, dict(zip(names, arrays, strict=True)))
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        shares = powers / powers.sum(-1, keepdims=True)
        return [
            json.dumps({**row, **answer(share)})
            for row, share in zip(rows, shares, strict=True)
        ]

    return compute


def answer(shares: np.ndarray) -> dict[str, Any]:
    """As `--mode=predict` adds it to a row."""
    each = {f"LABEL_{n}": float(f"{x:.6g}") for n, x in enumerate(shares)}
    return {"label": f"LABEL_{shares.argmax()}", "probabilities": each}


def main(arguments: list[str]) -> None:
    from bert_jax.serving import batching, connections, names, server

    if len(arguments) != 2:  # a person's; `serving` starts it
        sys.exit(__doc__)
    folder, rows = arguments
    compute = classifier(Path(folder))
    parts = (server.measured, lambda row: row, compute, int(rows))
    batcher = batching.Batcher(*parts, batching.CLOSE)
    config = SimpleNamespace(task=SimpleNamespace(name="text"))
    task: Any = SimpleNamespace(config=config, pairs=False)
    service = server.Service(task, batcher, 120.0)
    listening = server.bound("127.0.0.1", 0)
    called = names.Names("127.0.0.1")
    answering = connections.Connections(service.routes(), called)
    running = server.Running(answering, listening, "127.0.0.1")
    port = listening.getsockname()[1]
    print(f"serving on http://127.0.0.1:{port}", file=sys.stderr, flush=True)
    waits = threading.Thread(target=sys.stdin.read)
    waits.start()
    waits.join()
    running.end(1.0)
    batcher.close(1.0)


if __name__ == "__main__":
    main(sys.argv[1:])
