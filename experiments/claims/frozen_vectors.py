"""A linear classifier of texts on a frozen BERT's vectors.

Two vectors of each text: [CLS]'s of the last layer, and the mean of its pieces (without
[CLS] and [SEP]) in the layer before, as BERT's author advises (docs/insight.md). They
are computed once and kept. On each of them logistic regression is fitted, with a
penalty on the squared weights that cross-validation on the training examples picks.
"""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int
from scipy import optimize, special

from bert_jax.data.rows import Rows
from bert_jax.extract.extractor import Extractor
from bert_jax.pretrained import Bert
from bert_jax.runtime import terminal
from bert_jax.runtime.storage import write_atomically
from bert_jax.tasks.text import Text
from bert_jax.training import inference, sharding
from experiments.lib import by_size
from experiments.lib.runs import digest
from experiments.paper.feature_cache import weights_digest

PENALTIES = tuple(10.0**power for power in range(1, -4, -1))
FOLDS = 5
_ITERATIONS = 300


def vectors(
    bert: Bert, task: Text, split: str, folder: Path
) -> Float[np.ndarray, "2 texts hidden"]:
    """The texts' vectors, [CLS]'s and the mean's; those in `folder`, or computed."""
    rows = Rows(task.encode(task.examples(split), split), task.padding)
    path = folder / f"{split}-{digest(weights_digest(bert), rows.digest())}.npy"
    shape = (2, len(rows), bert.config.hidden_size)
    if path.exists():
        with contextlib.suppress(ValueError, EOFError):  # cut off, or not NumPy's
            found = np.load(path, allow_pickle=False)
            fits = found.shape == shape and found.dtype == np.float32
            if fits and np.isfinite(found).all():
                return found
        terminal.say(f"{path}: damaged; computing it again")
    terminal.say(f"vectors of {len(rows):,} texts ({split})")
    found = _compute(bert, task, rows)
    file = io.BytesIO()
    np.save(file, found)
    write_atomically(path, file.getvalue())
    return found


def _compute(bert: Bert, task: Text, rows: Rows) -> np.ndarray:
    config, last = task.config, bert.config.num_hidden_layers
    config.predict.layers = (last, last - 1)
    config.predict.combine, config.predict.vectors = "none", "words_mean"
    extractor = Extractor(config, bert.config, task.tokenizer)

    def step(params: Any, batch: Mapping[str, Array]) -> dict[str, Array]:
        both = extractor.step(params, batch)["vectors"][:, :2]
        return {"cls": both[:, 0, 0], "mean": both[:, 1, 1]}

    mesh = sharding.make_mesh(config, uses=("evaluate",))
    width = bert.config.hidden_size
    size = inference.batch_size(mesh, config.evaluate.batch_size, width)
    ask = inference.compile_predict(step, {"bert": bert.params["bert"]}, mesh, size)
    found = np.zeros((2, len(rows), width), np.float32)
    for padded in rows.by_length(size.rows):
        group = padded[padded < len(rows)]
        batch = rows.batch(group, rows.length(group, config.task.max_seq_length))
        places = np.arange(batch["input_ids"].shape[1])
        inside = (places > 0) & (places < rows.lengths[group][:, None] - 1)
        owners = np.where(places == 0, 0, np.where(inside, 1, -1)).astype(np.int32)
        names = ("input_ids", "input_mask", "segment_ids")
        given = {name: batch[name] for name in names} | {"owners": owners}
        outputs = ask(given)
        found[:, group] = outputs["cls"], outputs["mean"]
    return found


def logistic(
    x: Float[np.ndarray, "texts features"],
    y: Int[np.ndarray, "texts"],
    classes: int,
    penalty: float,
    start: Float[np.ndarray, "features+1 classes"] | None = None,
) -> Float[np.ndarray, "features+1 classes"]:
    """Softmax regression: minimizes mean cross entropy + penalty / 2 * |weights|^2.

    The last row has the biases, which have no penalty.

    Args:
      start: weights that are nearly right, to be quicker.
    """
    inputs = np.concatenate([x, np.ones((len(x), 1))], axis=1, dtype=np.float64)
    right = np.eye(classes)[y]
    decayed = np.ones((inputs.shape[1], 1))
    decayed[-1] = 0

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(-1, classes)
        logs = special.log_softmax(inputs @ weights, axis=1)
        slope = inputs.T @ (np.exp(logs) - right) / len(x) + penalty * decayed * weights
        loss = -np.sum(right * logs) / len(x)
        return loss + penalty / 2 * np.sum(decayed * weights**2), slope.ravel()

    first = np.zeros((inputs.shape[1], classes)) if start is None else start
    options = {"maxiter": _ITERATIONS, "ftol": 1e-8}
    found = optimize.minimize(
        objective, first.ravel(), jac=True, method="L-BFGS-B", options=options
    )
    return found.x.reshape(-1, classes)


def scores(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Accuracy, a fraction, and cross entropy in nats."""
    logs = special.log_softmax(x @ weights[:-1] + weights[-1], axis=1)
    right = logs[np.arange(len(y)), y]
    return float(np.mean(logs.argmax(axis=1) == y)), -float(right.mean())


def classified(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    classes: int,
    seed: int,
) -> dict[str, float]:
    """Fits the classifier; scores it on both sets.

    Args:
      train: vectors [texts, hidden] and classes [texts]; likewise `test`.
      seed: of the folds of the cross-validation.

    Returns:
      As a line of a run: accuracy and cross entropy of both; the penalty.
    """
    (x, y), (x_test, y_test) = train, test
    center, scale = x.mean(axis=0), x.std(axis=0) + 1e-6
    x, x_test = (x - center) / scale, (x_test - center) / scale
    fold = np.empty(len(y), int)
    fold[by_size.nested(y.tolist(), seed)] = np.arange(len(y)) % FOLDS
    losses = np.zeros(len(PENALTIES))
    for k in set(fold.tolist()):
        rest, held, near = fold != k, fold == k, None
        for place, penalty in enumerate(PENALTIES):
            near = logistic(x[rest], y[rest], classes, penalty, near)
            losses[place] += scores(near, x[held], y[held])[1] * held.mean()
    penalty = PENALTIES[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]
    weights = logistic(x, y, classes, penalty)
    found: dict[str, float] = {"penalty": penalty}
    for name, pair in (("train", (x, y)), ("test", (x_test, y_test))):
        found[f"{name}_accuracy"], found[f"{name}_loss"] = scores(weights, *pair)
    return found
