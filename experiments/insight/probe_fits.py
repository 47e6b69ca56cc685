"""Logistic regressions on vectors, their controls, and what they amount to.

The control task of Hewitt and Liang (2019) gives each word a random tag, the same
wherever it stands, in the tags' proportions. Only remembering words solves it, so a
probe's accuracy above its control's (selectivity) is what the vectors offer beyond
that.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from bert_jax.errors import UserError
from experiments.lib import plots
from experiments.lib.report import Figure, Table
from experiments.lib.verdicts import estimate, number, shown

# scikit-learn's default strength of the L2 penalty: the same for all layers, not tuned.
SETTINGS = {"C": 1.0, "max_iter": 1000}
# A column that varies less than this share of the vectors' size is constant: what
# varies is rounding, as in layer 0's [CLS].
_CONSTANT = 1e-4
USUAL_TAG = "word's most frequent tag"


class Set(NamedTuple):
    """Vectors with their labels, and the words (none for whole sentences)."""

    vectors: Float[np.ndarray, "vectors states hidden"]
    labels: Sequence[str]
    words: Sequence[str]


def part(train: Set, dev: Set, seed: int) -> dict[str, Any]:
    """Accuracies on one part's dev set.

    Args:
      seed: of the control task.

    Returns:
      `accuracy` and, of words, `control`, each by layer; `baselines`: the majority
      label's and, of words, that of each word's most frequent tag; `vectors`: in train
      and dev.

    Raises:
      UserError: all training labels are equal.
    """
    tasks = {"accuracy": (train.labels, dev.labels)}
    if train.words:
        tasks["control"] = control(train, dev, seed)
    found: dict[str, Any] = {name: [] for name in tasks}
    for layer in range(train.vectors.shape[1]):
        inputs = scaled(train.vectors[:, layer], dev.vectors[:, layer])
        for name, labels in tasks.items():
            found[name].append(fit(*inputs, *labels))
    found["baselines"] = baselines(train, dev)
    found["vectors"] = [len(train.labels), len(dev.labels)]
    return found


def control(train: Set, dev: Set, seed: int) -> tuple[list[str], list[str]]:
    """The control task's labels: one for each word, drawn as often as the tags are."""
    rng = np.random.default_rng(seed)
    words = sorted({*train.words, *dev.words})
    tags = sorted(train.labels)
    drawn = [tags[index] for index in rng.integers(len(tags), size=len(words))]
    given = dict(zip(words, drawn, strict=True))
    train_labels, dev_labels = ([given[w] for w in x.words] for x in (train, dev))
    return train_labels, dev_labels


def scaled(
    train: Float[np.ndarray, "train hidden"], dev: Float[np.ndarray, "dev hidden"]
) -> tuple[Float[np.ndarray, "train hidden"], Float[np.ndarray, "dev hidden"]]:
    """Both with train's mean and standard deviation set to 0 and 1, by column."""
    mean, spread = train.mean(axis=0), train.std(axis=0)
    size = np.sqrt(np.mean(np.square(train)))
    factor = np.where(spread > _CONSTANT * size, 1 / np.maximum(spread, 1e-30), 0)
    return (train - mean) * factor, (dev - mean) * factor


def fit(
    train: Float[np.ndarray, "train hidden"],
    dev: Float[np.ndarray, "dev hidden"],
    train_labels: Sequence[str],
    dev_labels: Sequence[str],
) -> float:
    """A logistic regression's accuracy on dev; warns where it has not converged.

    Raises:
      UserError: all training labels are equal.
    """
    from sklearn.linear_model import LogisticRegression

    if len(set(train_labels)) < 2:
        raise UserError(
            f"a part's training sentences have the label {train_labels[0]!r} only: "
            "name a larger file, or fewer --parts"
        )
    model = LogisticRegression(**SETTINGS).fit(train, train_labels)
    return float(np.mean(model.predict(dev) == np.asarray(dev_labels)))


def baselines(train: Set, dev: Set) -> dict[str, float]:
    """The accuracy of the most frequent label, and of each word's most frequent."""
    (usual, _), *_ = Counter(train.labels).most_common(1)
    found = {"majority": float(np.mean([label == usual for label in dev.labels]))}
    if train.words:
        counts: dict[str, Counter[str]] = {}
        for word, label in zip(train.words, train.labels, strict=True):
            counts.setdefault(word, Counter())[label] += 1
        tags = {word: count.most_common(1)[0][0] for word, count in counts.items()}
        pairs = zip(dev.words, dev.labels, strict=True)
        right = [tags.get(word, usual) == label for word, label in pairs]
        found[USUAL_TAG] = float(np.mean(right))
    return found


def summary(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the parts with 95% intervals (Student's t), by layer.

    Returns:
      `layers`: for each its `accuracy`, `gain` over layer 0 and, of words, `control`
      and `selectivity` (differences are taken part by part): `mean`, `reach` (half the
      interval) and `parts`; `baselines`; `vectors`, summed.
    """
    scores = np.array([part["accuracy"] for part in parts])  # [parts, layers]
    values = {"accuracy": scores, "gain": scores - scores[:, :1]}
    if "control" in parts[0]:
        values["control"] = np.array([part["control"] for part in parts])
        values["selectivity"] = scores - values["control"]
    return {
        "layers": [
            {name: _spread(found[:, layer].tolist()) for name, found in values.items()}
            for layer in range(scores.shape[1])
        ],
        "baselines": {
            name: _spread([part["baselines"][name] for part in parts])
            for name in parts[0]["baselines"]
        },
        "vectors": [sum(part["vectors"][i] for part in parts) for i in (0, 1)],
    }


def _spread(values: list[float]) -> dict[str, Any]:
    mean, reach = estimate(values)
    return {"mean": mean, "reach": number(reach), "parts": values}


def parts_of_report(title: str, found: Mapping[str, Any]) -> list[str | Table | Figure]:
    """A probe's numbers in percent, and their plot."""
    names = [name for name in ("accuracy", "control", "selectivity", "gain")
             if name in found["layers"][0]]  # fmt: skip
    rows = [
        (f"layer {index}", *(_percent(layer[name]) for name in names))
        for index, layer in enumerate(found["layers"])
    ]
    blank = [""] * (len(names) - 1)
    rows += [(name, _percent(x), *blank) for name, x in found["baselines"].items()]
    train, dev = found["vectors"]
    name = "".join(c if c.isalnum() else "_" for c in title)
    return [
        f"{train:,} for training, {dev:,} in dev",
        Table(rows, ("vectors", *names)),
        Figure(name, lambda: plots.lines([_panel(title, found)])),
    ]


def _percent(score: Mapping[str, Any]) -> str:
    return shown([100 * part for part in score["parts"]])


def note(parts: int) -> str:
    """What the tables' numbers are."""
    return (
        f"percent of dev, mean ± 95% interval over {parts} parts that share no "
        "sentence\ncontrol: a random tag for each word; selectivity: accuracy less "
        "control\ngain: over layer 0, the embeddings, part by part"
    )


def _panel(title: str, found: Mapping[str, Any]) -> plots.Panel:
    """A probe's accuracies and controls by layer, and its baselines, in percent."""
    layers = found["layers"]
    lines = {
        name: [
            (at, 100 * layer[name]["mean"], 100 * (layer[name]["reach"] or 0))
            for at, layer in enumerate(layers)
        ]
        for name in ("accuracy", "control")
        if name in layers[0]
    }
    levels = {name: 100 * x["mean"] for name, x in found["baselines"].items()}
    ticks = range(len(layers))
    x = "layer (0: the embeddings)"
    return plots.Panel(title, x, "percent", lines, levels, ticks=ticks)
