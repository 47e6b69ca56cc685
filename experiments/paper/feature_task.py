"""The config of one choice of table 7: a BiLSTM that tags words by kept vectors.

    python -m bert_jax.main --config=experiments/paper/feature_task.py:size=768 \
        --config.task.choice=last --config.task.train_vectors=train.npy \
        --config.task.dev_vectors=dev.npy --config.task.train_file=eng.train \
        --config.task.dev_file=eng.testa --config.train.seeds=5

experiments.paper.features computes the vectors and starts such a run for each choice.
Every epoch evaluates each split that has tags.
"""

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen import initializers
from jaxtyping import Array, Float, Int, Key
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.data.rows import Batch, Feature, Rows
from bert_jax.data.tables import Row
from bert_jax.errors import UserError
from bert_jax.models.heads import count_parameters
from bert_jax.models.layers import dropout
from bert_jax.models.lstm import BiLstm
from bert_jax.tasks import TASKS
from bert_jax.tasks.finetuning import Finetuning
from bert_jax.tasks.ner.task import Ner
from bert_jax.tasks.task import Data, Shapes
from bert_jax.types import DropoutKey
from configs.finetune import ner
from experiments.lib import programs
from experiments.paper.feature_choices import CHOICES, chosen

NAME = "vectors_ner"


class Mix(nn.Module):
    """ELMo's weighted sum of layers, which begins as their mean."""

    @nn.compact
    def __call__(
        self, layers: Float[Array, "batch layers words size"]
    ) -> Float[Array, "batch words size"]:
        def value(name: str, init: initializers.Initializer, *shape: int) -> Array:
            boxed = nn.with_logical_partitioning(init, (None,) * len(shape))
            return jnp.asarray(self.param(name, boxed, shape))

        weights = value("weights", initializers.zeros, layers.shape[1])
        mixed = jnp.einsum("l,blwd->bwd", jax.nn.softmax(weights), layers)
        return value("gamma", initializers.ones) * mixed


class FeatureTagger(nn.Module):
    """A BiLSTM over words' vectors and a linear classifier, in float32.

    A weighted sum of layers begins as their mean: the paper gives no weights.
    """

    labels: int
    size: int  # hidden units per direction of the BiLSTM
    mixes: bool  # the layers are a learned weighted sum, otherwise joined
    layers: int = 2  # number of BiLSTM layers
    dropout: float = 0.1  # between the BiLSTM's layers, and before the classifier

    @nn.compact
    def __call__(
        self,
        vectors: Float[Array, "batch words layers hidden"],
        mask: Int[Array, "batch words"],
        key: DropoutKey = None,
    ) -> Float[Array, "batch words labels"]:
        """Returns the labels' logits.

        Args:
          vectors: Vectors of each word, from one or more layers of BERT.
          mask: 1 for a word, 0 for padding after the words.
          key: Dropout key. None means evaluation.
        """
        keys = (None, None) if key is None else tuple(jax.random.split(key))
        if self.mixes:
            inputs = Mix(name="mix")(vectors.swapaxes(1, 2))
        else:
            inputs = vectors.reshape(*vectors.shape[:2], -1)
        lstm = BiLstm(self.size, self.layers, self.dropout, name="bilstm")
        hidden = dropout(lstm(inputs, mask, keys[0]), self.dropout, keys[1])
        # No mesh splits it.
        kernel = nn.with_logical_partitioning(initializers.lecun_normal(), (None, None))
        bias = nn.with_logical_partitioning(initializers.zeros, (None,))
        classifier = functools.partial(nn.Dense, kernel_init=kernel, bias_init=bias)
        return classifier(self.labels, name="classifier")(hidden)


class VectorRows(Rows):
    """Sentences whose `input_ids` number the words of a split. A batch has their
    vectors, too.

    Args:
      states: Hidden states that are read.
    """

    def __init__(
        self,
        features: Sequence[Feature],
        fill: Mapping[str, int],
        vectors: Float[np.ndarray, "states words hidden"],
        states: Sequence[int],
    ):
        super().__init__(features, fill)
        self._vectors, self._states = vectors, states

    def batch(self, indices: Int[np.ndarray, "batch"], length: int) -> Batch:
        """Returns `Rows.batch`, and `vectors` [batch, words, states, hidden]."""
        batch = super().batch(indices, length)
        words = batch["input_ids"]
        shape = (*words.shape, len(self._states), self._vectors.shape[2])
        vectors = np.empty(shape, np.float32)
        for place, state in enumerate(self._states):
            vectors[..., place, :] = self._vectors[state][words]
        vectors[batch["input_mask"] == 0] = 0.0
        return {**batch, "vectors": vectors}

    def length(self, indices: Int[np.ndarray, "batch"], limit: int) -> int:
        """Returns a length as `Rows.length`, limited by the longest sentence only."""
        del limit
        return super().length(indices, int(self.lengths.max()))


class VectorNer(Ner):
    """Words tagged by BERT's kept vectors, table 7's feature-based approach.

    `config.task` also has `choice` (of feature_choices.CHOICES) and `<split>_vectors`,
    files of [hidden states, words, hidden] in float32.
    """

    def vectors(self, split: str) -> Float[np.ndarray, "states words hidden"]:
        """Maps a split's vectors.

        Raises:
          UserError: They cannot be read.
        """
        path = self.config.task[f"{split}_vectors"]
        try:
            vectors = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise UserError(
                f"config.task.{split}_vectors={path}: cannot be read ({error}); python "
                "-m experiments.paper.features writes such a file"
            ) from error
        assert isinstance(vectors, np.ndarray)
        return vectors

    def encode(self, rows: Sequence[Row], split: str) -> list[Feature]:
        """Makes a row of each sentence: `input_ids` are the numbers of its words."""
        known = {label: index for index, label in enumerate(self.labels)}
        features, begin = [], 0
        for index, row in enumerate(rows):
            count = len(row["words"])
            columns: dict[str, Any] = {"input_ids": np.arange(begin, begin + count)}
            columns["segment_ids"] = np.zeros(count, int)
            if row["tags"] is not None:
                columns["labels"] = self._label_ids(row, known, split)
            features.append(Feature(index, columns, np.arange(count)))
            begin += count
        if begin != (there := self.vectors(split).shape[1]):
            raise UserError(
                f"config.task.{split}_vectors: of {there:,} words, and "
                f"config.task.{split}_file has {begin:,}"
            )
        return features


class VectorTask(Finetuning):
    """The run's task of `VectorNer`: a BiLSTM and a classifier.

    Args:
      config: Config of the run. `config.model` has the BiLSTM's layers, size (of both
        directions) and dropout.
    """

    definition: VectorNer

    def __init__(self, config: ConfigDict, tokenizer: Tokenizer | None = None):
        # Words have numbers, not tokens: any vocabulary will do.
        super().__init__(VectorNer, config, tokenizer or programs.stand_in(5))
        self._shape = self.definition.vectors("train").shape
        layers = self._shape[0] - 1
        (name,), _ = chosen([config.task.choice], layers)
        self._states, self._mixes = CHOICES[name].states(layers), CHOICES[name].mixes

    def _rows(self, split: str) -> Rows:
        if split not in self._tables:
            vectors = self.definition.vectors(split)
            parts = (self.encode_examples(split), self.padding, vectors)
            self._tables[split] = VectorRows(*parts, self._states)
        return self._tables[split]

    @property
    def dev_splits(self) -> tuple[str, ...]:
        """All: test is scored after each epoch too, which only dev may pick."""
        return self.splits

    def training_data(self) -> Data:
        rows = self._rows("train")
        dev = {split: self._rows(split).digest() for split in self.splits}
        return Data(0.0, len(rows), {"rows": rows.digest(), "dev": dev})

    @functools.cached_property
    def model(self) -> FeatureTagger:  # type: ignore[override]  # no BERT
        sizes = self.model_config
        return FeatureTagger(
            *(len(self.labels), sizes.hidden_size // 2, self._mixes),
            *(sizes.num_hidden_layers, sizes.hidden_dropout_prob),
        )

    def init_params(self, key: Key[Array, ""]) -> dict:
        """Draws `bilstm`, `classifier` and, for a weighted sum, `mix`."""
        vectors = jnp.zeros((1, 1, len(self._states), self._shape[2]))
        return self.model.init(key, vectors, jnp.ones((1, 1), jnp.int32))["params"]

    def unused_parameters(self, *, predicts: bool = False) -> tuple[str, ...]:
        """Names the sum's weights, because decay would pull them towards equal ones."""
        del predicts
        return ("mix",) if self._mixes else ()

    def apply(
        self,
        params: Any,
        batch: Mapping[str, Array],
        key: Key[Array, ""] | None = None,
        terms: Collection[str] = (),
    ) -> dict[str, Array]:
        """Returns the labels' logits, float32."""
        del terms  # of a Transformer's layers
        inputs = (batch["vectors"], batch["input_mask"], key)
        logits = self.model.apply({"params": params}, *inputs)
        assert isinstance(logits, jax.Array)
        return {"logits": logits}

    def flops(self, shapes: Shapes) -> int:
        """Counts FLOPs: each word meets every parameter, 3 x forward."""
        count = count_parameters(nn.meta.unbox(self.param_shapes))
        return 6 * math.prod(shapes["input_ids"]) * count


def get_config(size: str = "768") -> ConfigDict:
    """Returns the config of the feature-based approach.

    Args:
      size: Size of each direction of the BiLSTM.
    """
    TASKS[NAME] = VectorTask
    config = ner.get_config()
    # That of the stand-in for BERT's vocabulary.
    config.tokenizer.lowercase = True
    task, model = config.task, config.model
    task.name, task.choice = NAME, "concat_last_four"
    for split in ("train", "dev", "test"):
        task[f"{split}_vectors"] = ""
    model.num_hidden_layers, model.num_attention_heads = 2, 1
    model.hidden_size = model.intermediate_size = 2 * int(size)
    # Those of a public reproduction that reaches 95.8 on CoNLL-2003's dev set: the
    # paper gives none. The rate stays the same throughout.
    optimizer, train = config.optimizer, config.train
    optimizer.name, optimizer.learning_rate = "adamw", 3e-4
    optimizer.weight_decay = 0.01
    optimizer.warmup_fraction = optimizer.decay_power = 0.0
    train.batch_size, train.num_epochs = 64, 10.0
    return config
