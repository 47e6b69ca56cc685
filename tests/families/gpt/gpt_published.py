"""The published train.py's model in NumPy."""

import numpy as np
from scipy import special


def norm(x, g, b):
    u = x.mean(-1, keepdims=True)
    s = np.square(x - u).mean(-1, keepdims=True)
    return (x - u) / np.sqrt(s + 1e-5) * g + b


def published(t, X, M, n_layer, n_head):
    """Computes train.py's `model`: the vectors and the language model's losses.

    Args:
      t: Tensors under Hugging Face's names, in the released layout.
      X: Tokens [sequences, n_ctx].
      M: 1 for a token.
    """
    n_ctx = X.shape[1]
    tokens, positions = (
        t[f"transformer.{name}_embed.weight"] for name in ("tokens", "positions")
    )
    we = np.concatenate([tokens, positions[:n_ctx]])
    h = we[X] + we[len(tokens) + np.arange(n_ctx)]
    b = np.tril(np.ones((n_ctx, n_ctx)))
    for layer in range(n_layer):
        own = {k.removeprefix(f"transformer.h.{layer}."): v for k, v in t.items()}

        def conv1d(x, name, own=own):
            return x @ own[f"{name}.weight"] + own[f"{name}.bias"]

        def split(x):
            return x.reshape(*x.shape[:2], n_head, -1).transpose(0, 2, 1, 3)

        q, k, v = map(split, np.split(conv1d(h, "attn.c_attn"), 3, axis=2))
        w = q @ k.transpose(0, 1, 3, 2) / np.sqrt(v.shape[-1])
        w = special.softmax(w * b + -1e9 * (1 - b), axis=-1)
        a = (w @ v).transpose(0, 2, 1, 3).reshape(h.shape)
        n = norm(h + conv1d(a, "attn.c_proj"), own["ln_1.weight"], own["ln_1.bias"])
        x = conv1d(n, "mlp.c_fc")
        x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        h = norm(n + conv1d(x, "mlp.c_proj"), own["ln_2.weight"], own["ln_2.bias"])
    lm_logits = h[:, :-1] @ we.T
    log_probs = special.log_softmax(lm_logits, axis=-1)
    lm_losses = -np.take_along_axis(log_probs, X[:, 1:, None], axis=-1)[..., 0]
    lm_losses = (lm_losses * M[:, 1:]).sum(1) / M[:, 1:].sum(1)
    return h, lm_losses
