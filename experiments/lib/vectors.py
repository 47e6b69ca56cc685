"""Some layers' vectors of rows, in memory, as `--mode=extract` computes them."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from bert_jax.pretrained import Bert

_WINDOW = 256  # rows whose padded batches are in memory together


def read(
    bert: Bert, unit: str, rows: Sequence[str | Sequence[str]], layers: Sequence[int]
) -> list[Float[np.ndarray, "vectors states hidden"]]:
    """The vectors of each row.

    Warns if rows were cut at the model's positions: they have fewer vectors than words.

    Args:
      unit: as `config.predict.vectors`: pieces, words, words_mean, cls or mean.
      rows: texts, or lists of words.
      layers: as `config.predict.layers`.
    """
    shape, found = (-1, len(layers), bert.config.hidden_size), []
    for begin in range(0, len(rows), _WINDOW):
        window = rows[begin : begin + _WINDOW]
        some = [row if isinstance(row, str) else list(row) for row in window]
        answers = bert._extracted(some, layers=tuple(layers), vectors=unit)
        # Copies: a view would keep its whole padded batch.
        found += [np.array(answer["vectors"]).reshape(shape) for answer in answers]
    return found
