"""ELMo's pre-training: language models of both directions (allenai/bilm-tf)."""

import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from ml_collections import ConfigDict
from tokenizers import Tokenizer

from bert_jax.config.phases import Phase
from bert_jax.data.rows import RowIndex
from bert_jax.errors import UserError
from bert_jax.families.elmo import characters, model, sampled_softmax, streams
from bert_jax.families.elmo.batches import Windows
from bert_jax.families.elmo.config import ElmoConfig, flops
from bert_jax.family import require_values
from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.tasks.objectives import lm_table
from bert_jax.tasks.task import Batch, Data, Predictor, Results, Shapes, Task
from bert_jax.types import Arrays, DropoutKey, Scalars

WINDOWS = 10  # number of windows in a row of evaluation, whose state begins at 0
_DIRECTIONS = ("", "_backward")  # endings of a batch's columns


class Elmo(Task):
    """The task of pre-training an ELMo."""

    main_score = "loss"
    splits = ("dev",)
    model_config: ElmoConfig  # type: ignore[assignment] # no BERT

    def __init__(self, config: ConfigDict):
        """Checks the config, without reading data.

        Raises:
          UserError: A value does not fit, or this task does not use it.
        """
        super().__init__(config)
        self._record: dict[str, Any] = {}
        self._by_split: dict[str, Windows] = {}
        _refuse(config)
        self.model_config = ElmoConfig.from_config(config)
        self.model = model.Elmo(self.model_config)

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary of words to predict."""
        return self._data.tokenizer(self.config)

    def training_data(self) -> Data:
        """Prepares the streams of words.

        Raises:
          UserError: See `streams.prepare`. There are also fewer words than the
            vocabulary needs, or than a step takes.
        """
        data, classes = self._data, self.model_config.vocab_size
        if len(data.words) < classes:
            raise UserError(
                f"config.tokenizer.vocab_size={classes}: the text has "
                f"{len(data.words)} distinct words, <S>, </S> and <UNK> included; set "
                f"--config.tokenizer.vocab_size={len(data.words)} or less"
            )
        self._windows("train").steps(self.config.train.batch_size, self._unroll)
        max_characters = self.model_config.max_characters
        words = data.words[len(streams.SPECIAL) :]
        if cut := characters.count_cut_words(words, max_characters):
            self.notices[
                f"distinct words of more than {max_characters - 2} bytes, cut"
            ] = cut
        if unknown := int(data.counts[classes:].sum()):
            self.notices["words to predict that are <UNK>"] = unknown
        return Data(
            0.0,  # it reads every word
            record={
                "sources": list(self.config.corpus.sources),
                "folder": data.folder.name,
            },
            folders=(str(data.folder),),
            report=streams.text,
        )

    def reuse_prepared_data(self, record: Mapping[str, Any]) -> None:
        """Reuses the run's prepared streams, where they still exist."""
        if record.get("sources") == list(self.config.corpus.sources):
            self._record = dict(record)

    def phases(self) -> list[Phase]:
        """Returns one phase: all batches have the same shape."""
        rows, length = self.config.train.batch_size, self.model_config.max_characters
        shapes: dict[str, tuple[int, ...]] = {"input_ids": (rows, self._unroll)}
        for name in _DIRECTIONS:
            shapes[f"characters{name}"] = (rows, self._unroll, length)
            shapes[f"targets{name}"] = (rows, self._unroll)
        steps = self.config.train.num_steps
        return [Phase(0, steps, rows, self._unroll, 0, 1, shapes)]

    def init_params(self, key: Key[Array, ""]) -> dict:
        """Draws `elmo`, and the softmax that both directions share."""
        config, (elmo_key, other) = self.model_config, jax.random.split(key)
        ids = jnp.zeros((1, 1, config.max_characters), jnp.int32)
        shape = (config.vocab_size, config.hidden_size)
        kernel = jax.random.normal(other, shape) / math.sqrt(config.hidden_size)
        return {
            "elmo": self.model.init(elmo_key, ids, ids)["params"],
            "softmax": {
                "kernel": nn.LogicallyPartitioned(kernel, ("vocab", "embed")),
                "bias": nn.LogicallyPartitioned(jnp.zeros(shape[:1]), ("vocab",)),
            },
        }

    def first_carry(self) -> Arrays:
        """Returns each LSTM's state, for each row and direction: 0."""
        return model.zero_carry(self.model_config, self.config.train.batch_size)

    def batches(self, step: int, rows: RowIndex, seed: int) -> Iterator[Batch]:
        """Yields each row's next window of words, from `step` on."""
        size = self.config.train.batch_size
        return self._windows("train").train(step, size, self._unroll, rows, seed)

    def loss(self, params: Any, batch: Arrays, key: DropoutKey) -> Scalars:
        """Returns the loss of `carried_loss` at the beginning of a text."""
        first = model.zero_carry(self.model_config, len(batch["input_ids"]))
        return self.carried_loss(params, batch, key, first)[0]

    def carried_loss(
        self, params: Any, batch: Arrays, key: DropoutKey, carry: Arrays
    ) -> tuple[Scalars, Arrays]:
        """Returns `lm_loss`, the sum of both directions' cross entropies in nats, and
        the LSTMs' next states.

        The gradient is that of a row's loss, not of a word's: bilm multiplies by the
        words of a window, and its clipping and its rate are for that.
        """
        keys = (None,) * 4 if key is None else tuple(jax.random.split(key, 4))
        carry = self._reset_states(carry, keys[3])
        layers, after = self._apply(
            params,
            *(batch[f"characters{name}"] for name in _DIRECTIONS),
            carry,
            keys[0],
        )
        total = jnp.float32(0)
        for hidden, name, dropout_key in zip(
            layers[-1], _DIRECTIONS, keys[1:3], strict=True
        ):
            flat = hidden.reshape(-1, hidden.shape[-1])
            targets = batch[f"targets{name}"].reshape(-1)
            total += jnp.sum(
                self._losses(params["softmax"], flat, targets, dropout_key)
            )
        by_row = self._unroll * total
        return {"lm_loss": jax.lax.stop_gradient(total - by_row) + by_row}, after

    def loss_weights(self, batch: Arrays) -> Scalars:
        """Counts the words to predict in both directions: the loss is half of their
        losses' sum."""
        count = sum(batch[f"targets{name}"].size for name in _DIRECTIONS)
        return {"lm_loss": jnp.float32(count)}

    def evaluation_batches(
        self, split: str, step: int, rows: RowIndex
    ) -> Iterator[Batch]:
        """Yields the held-out text in its order, in rows of ten windows."""
        del step
        size = self.config.evaluate.batch_size
        return self._windows(split).once(size, WINDOWS * self._unroll, rows)

    def outputs(self, params: Any, batch: Arrays) -> dict[str, tuple[Array, Array]]:
        """Computes sums and weights of the losses, one window after the other.

        They are over the whole vocabulary, with those of unigrams on the same words.
        """

        def cut(x: Array) -> Array:
            rows, windows = x.shape[0], x.shape[1] // self._unroll
            return x.reshape(rows, windows, self._unroll, *x.shape[2:]).swapaxes(0, 1)

        def window(carry: Any, columns: Arrays) -> tuple:
            read = (columns[f"characters{name}"] for name in _DIRECTIONS)
            layers, carry = self._apply(params, *read, carry)
            return carry, self._scored(params["softmax"], layers[-1], columns)

        sums: Scalars
        first = model.zero_carry(self.model_config, len(batch["input_ids"]))
        parts = {name: cut(x) for name, x in batch.items() if name != "step"}
        _, sums = jax.lax.scan(window, dict(first), parts)
        count = jnp.sum(batch["weights"])
        both = {name: jnp.sum(value) for name, value in sums.items()}
        return {
            name: (value, count if "ward_" in name else 2 * count)
            for name, value in both.items()
        }

    def results(
        self, split: str, fetched: Sequence[Any], *, learns: bool = False
    ) -> Results:
        """Computes means over all words. `lm_loss` is half of both directions' sum, as
        bilm has it, and `perplexity` its exponential."""
        del split, learns
        means = {
            name: math.fsum(float(batch[name][0]) for batch in fetched)
            / max(math.fsum(float(batch[name][1]) for batch in fetched), 1e-6)
            for name in fetched[0]
        }
        perplexity = math.exp(min(means["lm_loss"], 700.0))
        scores = {"loss": means["lm_loss"], **means, "perplexity": perplexity}
        return Results(scores, table=functools.partial(lm_table, "lm"))

    def predictor(self, missing: Collection[str] = ()) -> Predictor:
        """Raises UserError, because there is no predictor."""
        raise UserError("an ELMo answers no rows; --mode=extract writes its vectors")

    def flops(self, shapes: Shapes) -> int:
        """Returns model FLOPs of a training step, with the softmax over its sample."""
        words, config = math.prod(shapes["input_ids"]), self.model_config
        classes = self._samples + 1 if self._samples else config.vocab_size
        softmax = 3 * 2 * 2 * words * config.hidden_size * classes
        return flops(config, words) + softmax

    @property
    def _unroll(self) -> int:
        return self.config.task.unroll

    @property
    def _samples(self) -> int:
        """Number of words drawn for a step's softmax. 0 means that it has all."""
        samples = self.config.task.samples
        return samples if samples < self.model_config.vocab_size else 0

    @functools.cached_property
    def _data(self) -> streams.Prepared:
        return streams.prepare(self.config, self._record.get("folder", ""))

    def _reset_states(self, carry: Arrays, key: DropoutKey) -> Arrays:
        """Returns the states, with 0 in the rows that `task.fresh` draws."""
        rate = self.config.task.fresh
        if key is None or not rate:
            return carry
        rows = next(iter(carry.values())).shape[0]
        goes_on = ~jax.random.bernoulli(key, rate, (rows, 1, 1))
        return {name: state * goes_on for name, state in carry.items()}

    def _windows(self, split: str) -> Windows:
        config = self.model_config
        if split not in self._by_split:
            sizes = (config.vocab_size, config.max_characters)
            self._by_split[split] = Windows(self._data, split, *sizes)
        return self._by_split[split]

    def _apply(self, params: Any, *inputs: Any) -> tuple[list[Array], dict[str, Array]]:
        layers, carry = self.model.apply({"params": params["elmo"]}, *inputs)
        assert isinstance(layers, list)
        return layers, dict(carry)

    def _losses(
        self,
        softmax: Arrays,
        hidden: Float[Array, "words size"],
        targets: Array,
        key: DropoutKey,
    ) -> Float[Array, "words"]:
        kernel, bias = softmax["kernel"], softmax["bias"]
        if key is None or not self._samples:
            return cross_entropy(hidden @ kernel.T + bias, targets)
        sample = sampled_softmax.draw(key, len(bias), self._samples)
        return sampled_softmax.losses(hidden, targets, kernel, bias, sample)

    def _scored(self, softmax: Arrays, hidden: Array, columns: Arrays) -> Scalars:
        """Sums over a window, for `outputs`."""
        names = ("lm_loss", "lm_accuracy", "unigram_loss", "unigram_accuracy")
        sums: Scalars = dict.fromkeys(names, jnp.float32(0))
        for i, name in enumerate(_DIRECTIONS):
            targets, weights = columns[f"targets{name}"], columns["weights"]
            unigram = jnp.asarray(self._unigrams[i])
            logits = hidden[i] @ softmax["kernel"].T + softmax["bias"]
            loss = jnp.sum(weights * cross_entropy(logits, targets))
            right = jnp.argmax(logits, axis=-1) == targets
            sums["lm_loss"] += loss
            sums[f"{name.strip('_') or 'forward'}_loss"] = loss
            sums["lm_accuracy"] += jnp.sum(weights * right)
            sums["unigram_loss"] -= jnp.sum(weights * unigram[targets])
            majority = targets == jnp.argmax(unigram)
            sums["unigram_accuracy"] += jnp.sum(weights * majority)
        return sums

    @functools.cached_property
    def _unigrams(self) -> Float[np.ndarray, "2 vocab"]:
        """Log probabilities from the training text's counts, plus one.

        Each direction predicts its own end of a sentence.
        """
        data, classes = self._data, self.model_config.vocab_size
        counts = data.counts[:classes].astype(np.float64) + 1
        counts[2] += data.counts[classes:].sum()
        both = np.stack([counts, counts])
        both[0, 1] = both[1, 0] = 1 + data.report["totals"]["train"]["sentences"]
        return np.log(both / both.sum(-1, keepdims=True)).astype(np.float32)


def _refuse(config: ConfigDict) -> None:
    """Raises UserError for settings that an ELMo does not use."""
    require_values(
        config,
        "an ELMo",
        ("init_from", "", "starts from random values"),
        ("tokenizer.vocab_file", "", "counts its words in the text"),
        ("model.dtype", "float32", "is float32"),
        ("corpus.packing", False, "has no rows to pack"),
        ("corpus.weights", (), "reads every sentence once in an epoch"),
        ("corpus.runner", "", "counts its words in one process"),
        ("phase2.fraction", 0.0, "has one phase"),
        ("train.phases", (), "has one phase"),
        ("train.micro_batches", 1, "takes its state from step to step"),
        ("train.transforms", (), "takes its state from step to step"),
        ("evaluate.splits", ("dev",), "holds one split back"),
    )
    if config.tokenizer.vocab_size < 4:
        raise UserError(
            f"config.tokenizer.vocab_size={config.tokenizer.vocab_size}: at least 4, "
            "three marks and a word"
        )
    if not config.train.num_steps:
        raise UserError("config.train.num_steps=0: an ELMo counts steps, not epochs")
