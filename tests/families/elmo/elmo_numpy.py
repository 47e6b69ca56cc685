"""ELMo in NumPy, word by word, from the published rules, with arrays as weights.hdf5
has them (TensorFlow's names)."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def clip(x, bound):
    return np.clip(x, -bound, bound) if bound else x


def read_word(ids, weights, filters, highways, activation):
    """Returns the vector of a word of character ids, 0 for no word."""
    table = np.concatenate([np.zeros_like(weights["char_embed"][:1]),
                            weights["char_embed"]])  # fmt: skip
    x = table[ids]
    parts = []
    for i, (width, number) in enumerate(filters):
        kernel, bias = weights[f"CNN/W_cnn_{i}"][0], weights[f"CNN/b_cnn_{i}"]
        best = np.full(number, -np.inf)
        for start in range(len(ids) - width + 1):
            window = x[start : start + width]
            best = np.maximum(best, np.einsum("wc,wcn->n", window, kernel) + bias)
        parts.append(np.maximum(best, 0) if activation == "relu" else np.tanh(best))
    y = np.concatenate(parts)
    for i in range(highways):
        own = {k: weights[f"CNN_high_{i}/{k}"] for k in
               ("W_carry", "b_carry", "W_transform", "b_transform")}  # fmt: skip
        carry = sigmoid(y @ own["W_carry"] + own["b_carry"])
        new = np.maximum(y @ own["W_transform"] + own["b_transform"], 0)
        y = carry * new + (1 - carry) * y
    return y @ weights["CNN_proj/W_proj"] + weights["CNN_proj/b_proj"]


def lstm(x, kernel, bias, projection, cell_clip=0, projection_clip=0, state=None):
    """Computes TensorFlow's LSTMCell: outputs [words, size], and the last cell and
    output."""
    inner, size = projection.shape
    cell, hidden = state or (np.zeros(inner), np.zeros(size))
    outputs = []
    for vector in x:
        gates = np.concatenate([vector, hidden]) @ kernel + bias
        i, j, f, o = np.split(gates, 4)
        cell = sigmoid(f + 1.0) * cell + sigmoid(i) * np.tanh(j)
        cell = clip(cell, cell_clip)
        hidden = clip((sigmoid(o) * np.tanh(cell)) @ projection, projection_clip)
        outputs.append(hidden)
    return np.array(outputs), (cell, hidden)


def direction(x, weights, number, options, drop=lambda x: x):
    """Returns the layers of one direction for vectors in the order in which it
    reads."""
    found = []
    for i in range(options["n_layers"]):
        root = f"RNN_{number}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
        x = drop(x)
        own = (weights[f"{root}/{name}"] for name in ("W_0", "B", "W_P_0"))
        y, _ = lstm(x, *own, options["cell_clip"], options["proj_clip"])
        x = x + y if i and options["use_skip_connections"] else y
        found.append(x)
    return found


def layers(words, weights, options):
    """Returns [layers, words, 2 x size] of a sentence of character ids, marks
    included."""
    cnn = options["char_cnn"]
    given = (weights, cnn["filters"], cnn["n_highway"], cnn["activation"])
    x = np.array([read_word(ids, *given) for ids in words])
    forward = direction(x, weights, 0, options["lstm"])
    backward = [y[::-1] for y in direction(x[::-1], weights, 1, options["lstm"])]
    both = [(x, x), *zip(forward, backward, strict=True)]
    return np.array([np.concatenate(pair, axis=-1) for pair in both])
