"""The continuous bag of words as GLUE's baseline has it (Wang et al. 2018, section 5):
the mean of the words' vectors, and a hidden layer; of a pair [u; v; |u - v|; u * v].

Words are whole: those that the vocabulary lacks are left out of the mean.
"""

import functools
import math
import types
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.config import rules
from bert_jax.errors import UserError
from bert_jax.family import Family
from bert_jax.models.config import BertConfig
from bert_jax.models.layers import dropout
from bert_jax.tasks.classification import Classification
from bert_jax.tasks.finetuning import Finetuning
from bert_jax.tasks.task import Data, Shapes
from families.elmo.systems import Linear


class Cbow(nn.Module):
    """The table of vectors under `embeddings`, and the classifier."""

    words: int
    size: int
    pairs: bool
    classifier_size: int
    dropout: float
    labels: int
    special: tuple[int, ...]  # ids that are no words

    @nn.compact
    def __call__(
        self,
        input_ids: Int[Array, "batch length"],
        input_mask: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"],
        key: Key[Array, ""] | None = None,
    ) -> dict[str, Float[Array, "batch labels"]]:
        """`logits`.

        Args:
          key: for dropout; None for evaluation.
        """
        del input_mask  # padding has no vector, as other special tokens have none
        normal = nn.initializers.normal(1.0)
        boxed = nn.with_logical_partitioning(normal, (None, None))
        shape = (self.words, self.size)
        table = jnp.asarray(self.param("embeddings", boxed, shape))
        known = ~jnp.isin(input_ids, jnp.array(self.special))
        vectors = table[input_ids]
        x = _mean(vectors, known & (segment_ids == 0))
        if self.pairs:
            v = _mean(vectors, known & (segment_ids == 1))
            x = jnp.concatenate([x, v, jnp.abs(x - v), x * v], axis=-1)
        x = jnp.tanh(Linear(self.classifier_size, name="hidden")(x))
        x = dropout(x, self.dropout, key)
        return {"logits": Linear(self.labels, name="output")(x)}


def _mean(
    vectors: Float[Array, "batch length size"], where: Bool[Array, "batch length"]
) -> Float[Array, "batch size"]:
    """Zeros where there is no word."""
    count = jnp.maximum(where.sum(axis=1, keepdims=True), 1)
    return jnp.sum(jnp.where(where[..., None], vectors, 0.0), axis=1) / count


class CbowTask(Finetuning[Any, Any]):
    """Replaces BERT by a bag of words in a task that classifies texts.

    Args:
      config: reads from `config.task` also `vectors` (a file of `experiments.cbow.
        vectors`; empty: random ones), `vector_size`, `classifier_size` and `dropout`.
    """

    @functools.cached_property
    def model(self) -> Cbow:  # type: ignore[override] # no BERT
        task = self.config.task
        return Cbow(
            words=self.tokenizer.get_vocab_size(),
            size=task.vector_size,
            pairs=getattr(self, "pairs", False),
            classifier_size=task.classifier_size,
            dropout=float(task.dropout),
            labels=max(1, len(self.labels)),
            special=tuple(self.special),
        )

    def sizes(self) -> BertConfig:
        """A BERT's, as the memory's bounds and the rows' length take them."""
        fields = {**self.config.model.to_dict(), "architecture": "bert"}
        return BertConfig.create(fields, self.tokenizer.get_vocab_size())

    def init_params(self, key: Key[Array, ""]) -> dict:
        """`embeddings`, `hidden` and `output`."""
        ids = jnp.zeros((1, 1), jnp.int32)
        return self.model.init(key, ids, ids, ids)["params"]

    def training_data(self) -> Data:
        """Also reads the vectors.

        Raises:
          UserError: as the task's; or the file is missing, or of another size or
            vocabulary.
        """
        path = self.config.task.vectors
        shape = self.tokenizer.get_vocab_size(), self.config.task.vector_size
        self._vectors = _read(path, *shape) if path else None
        return super().training_data()

    def start(self, params: Any) -> Any:
        """Puts the vectors of the file in."""
        if self._vectors is None:
            return params
        table = params["embeddings"]
        whole = np.broadcast_to(self._vectors.astype(np.float32), table.shape)
        return {**params, "embeddings": jax.device_put(whole, table.sharding)}

    def unused(self, *, predicts: bool = False) -> tuple[str, ...]:
        """None: there is no pooler."""
        del predicts
        return ()

    def flops(self, shapes: Shapes) -> int:
        """The hidden layer's, 3 x forward."""
        rows = math.prod(shapes["input_ids"][:-1])
        model = self.model
        inputs = model.size * (4 if model.pairs else 1)
        return 3 * 2 * rows * model.classifier_size * (inputs + model.labels)


def _read(path: str, words: int, size: int) -> Float[np.ndarray, "words size"]:
    try:
        vectors = np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(
            f"config.task.vectors={path}: cannot be read ({error}); python -m "
            "experiments.cbow.vectors writes such a file"
        ) from error
    if vectors.shape != (words, size):
        raise UserError(
            f"config.task.vectors={path}: {vectors.shape[0]} words of "
            f"{vectors.shape[-1]} numbers; config.tokenizer.vocab_file has {words} "
            f"words and config.task.vector_size is {size}"
        )
    return vectors


class CbowFamily(Family):
    """A bag of words, which has no encoder."""

    name = "cbow"
    title = "a bag of words"
    model_type = ""
    trunk_name = "embeddings"
    attends = has_segments = False
    extractor = None
    rules: Mapping[str, Any] = {
        "task.vector_size": rules.whole(1, rules.SIZE),
        "task.classifier_size": rules.whole(1, rules.SIZE),
        "task.dropout": rules.number("[0, 1)"),
    }

    def task(self, name: str, task: Any) -> type[CbowTask]:
        """The task as a bag of words does it.

        Raises:
          UserError: it does not classify texts.
        """
        if not (isinstance(task, type) and issubclass(task, Classification)):
            raise UserError(
                f"config.task.name={name}: a bag of words classifies texts and pairs "
                "(glue.py, text.py, imdb.py)"
            )
        return types.new_class(f"Cbow{task.__name__}", (CbowTask, task))


CBOW = CbowFamily()
