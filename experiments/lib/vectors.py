"""All layers' vectors of some rows, in memory, as `--mode=extract` computes them."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bert_jax.config import configuration
from bert_jax.extract.extractor import Extractor
from bert_jax.pretrained import Bert
from bert_jax.training import sharding
from bert_jax.training.inference import Answerer

# Rows that are sorted by length together, and rows of a batch.
_WINDOW, _BATCH = 256, 32


class Reader:
    """Gives the vectors of rows: one kind of vectors.

    Args:
      unit: as `config.predict.vectors`: pieces, words, words_mean, cls or mean.
      layers: as `config.predict.layers`; empty means every hidden state.
    """

    def __init__(self, bert: Bert, unit: str, layers: Sequence[int] = ()):
        config = configuration.defaults()
        every = range(bert.config.num_hidden_layers + 1)
        config.predict.layers = tuple(layers or every)
        config.predict.vectors = unit
        extractor = Extractor(config, bert.config, bert.tokenizer)
        params = dict(bert.params["bert"])
        if "pooler" not in params:  # the module needs one; its output is not used
            size = bert.config.hidden_size
            zeros = {"kernel": jnp.zeros((size, size)), "bias": jnp.zeros(size)}
            params["pooler"] = zeros
        mesh = sharding.make_mesh(config, (), jax.devices()[:1])
        params = {"bert": params}
        self._answerer = Answerer(extractor, params, mesh, _BATCH, bert.config)
        self._extractor = extractor

    def read(
        self, rows: Sequence[dict[str, Any]]
    ) -> list[Float[np.ndarray, "vectors states hidden"]]:
        """The vectors of each row, from each layer (0: the embeddings').

        Warns at the end if rows were cut at the model's positions: they have fewer
        vectors than words.

        Args:
          rows: {"text"} or {"words"}, as `--mode=extract` reads them.
        """
        found: list[np.ndarray] = []
        for begin in range(0, len(rows), _WINDOW):
            answers = self._answerer.answer(rows[begin : begin + _WINDOW])
            # Copies: a view would keep its whole padded batch.
            found += [np.array(answer["vectors"]) for answer in answers]
        self._extractor.warn()
        return found
