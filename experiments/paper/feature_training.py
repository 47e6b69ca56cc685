"""Trains the taggers of all restarts together, on vectors from disk.

A restart's first values, dropout and order of sentences follow from its seed alone.
"""

import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key
from ml_collections import ConfigDict

from bert_jax.data.rows import power_of_two
from bert_jax.models.tagger import FeatureTagger
from bert_jax.runtime import temporary, terminal, untrusted
from bert_jax.runtime.storage import write_atomically
from bert_jax.training import optimizer
from experiments.lib import kept
from experiments.paper import feature_table

SAVE_SECONDS = 60.0  # between two saves of a training's state
_SHORTEST = 16  # words that a batch is padded to
Scorer = Callable[[list[Int[np.ndarray, "words"]]], float]


class Split(NamedTuple):
    """A split's words, sentence after sentence.

    `vectors` are of all layers; `labels` are 0 where a word has none; `score` gives the
    score of a label for each word of each sentence, None if the split has no tags.
    """

    vectors: Float[np.ndarray, "states words hidden"]
    labels: Int[np.ndarray, "words"]
    begins: Int[np.ndarray, "sentences"]
    lengths: Int[np.ndarray, "sentences"]
    score: Scorer | None


class Setting(NamedTuple):
    """What decides a training, besides the data."""

    states: list[int]  # hidden states that the tagger reads
    mixes: bool
    labels: int
    size: int  # of each direction of the BiLSTM
    dropout: float
    seeds: list[int]
    epochs: int
    config: ConfigDict  # `optimizer`, `train.batch_size`, `evaluate.batch_size`

    def fingerprint(self, data: Mapping[str, Any]) -> str:
        """A hash of this and of what tells the data."""
        config = self.config
        fields = self._replace(config=None)._asdict()  # type: ignore[arg-type]  # dropped
        fields["optimizer"] = config.optimizer.to_dict()
        fields["batches"] = (config.train.batch_size, config.evaluate.batch_size)
        text = json.dumps([1, fields, data], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class State(NamedTuple):
    """All restarts' arrays, each with a first axis of restarts."""

    params: Any
    moments: Any
    loss: Float[Array, "seeds"]  # sum over the steps of the epoch


class Batch(NamedTuple):
    vectors: Float[np.ndarray, "*seeds batch words states hidden"]
    mask: Int[np.ndarray, "*seeds batch words"]
    labels: Int[np.ndarray, "*seeds batch words"]


class Taggers:
    """One choice of layers, with all its restarts.

    Args:
      splits: `train`, `dev` and, if there is one, `test`.
    """

    def __init__(self, setting: Setting, splits: Mapping[str, Split]):
        self.setting, self.splits = setting, splits
        lengths = splits["train"].lengths
        self.steps_per_epoch = -(-len(lengths) // setting.config.train.batch_size)
        config = setting.config.copy_and_resolve_references()
        config.train.num_steps = setting.epochs * self.steps_per_epoch
        # Decay would pull the sum's weights towards equal ones.
        self._optimizer = optimizer.make(config, unused=("mix",))
        self._model = FeatureTagger(
            setting.labels, setting.size, setting.mixes, dropout=setting.dropout
        )
        self._step = jax.jit(self._all_step, donate_argnums=0)
        self._answer = jax.jit(jax.vmap(self._best, in_axes=(0, None, None)))

    def train(self, place: Path, name: str) -> dict[str, Any]:
        """Trains, or goes on where a killed process left off.

        Args:
          place: of the state that is kept until the training has ended.
          name: for the lines that are printed.

        Returns:
          `epochs`, a list: of each epoch the `loss` (mean over its steps, nats a word)
          and each split's score, by restart, and for a weighted sum `weights` and
          `scale`; and `seconds`.
        """
        state, step, history, before = self._restore(place)
        started = saved = time.monotonic()
        total = self.setting.epochs * self.steps_per_epoch
        for now, batch in enumerate(self._batches(step), start=step + 1):
            state = self._step(state, batch, self._keys, jnp.int32(now))
            if now % self.steps_per_epoch == 0:
                history.append(self._epoch(state))
                state = state._replace(loss=jnp.zeros_like(state.loss))
                self._tell(name, history[-1], len(history))
            if now < total and (
                now % self.steps_per_epoch == 0
                or time.monotonic() - saved >= SAVE_SECONDS
            ):
                spent = before + time.monotonic() - started
                self._save(place, state, now, history, spent)
                saved = time.monotonic()
        seconds = round(before + time.monotonic() - started, 1)
        return {"epochs": history, "seconds": seconds}

    def init(self) -> State:
        """The state before the first step."""
        states, hidden = len(self.setting.states), self.splits["train"].vectors.shape[2]
        vectors, mask = jnp.zeros((1, 1, states, hidden)), jnp.ones((1, 1), jnp.int32)

        def one(key: Key[Array, ""]) -> tuple[Any, Any]:
            params = nn.meta.unbox(self._model.init(key, vectors, mask)["params"])
            return params, self._optimizer.init(params)

        params, moments = jax.jit(jax.vmap(one))(self._keys)
        return State(params, moments, jnp.zeros(len(self.setting.seeds)))

    @functools.cached_property
    def _keys(self) -> Key[Array, "seeds"]:
        return jax.vmap(jax.random.key)(jnp.asarray(self.setting.seeds, jnp.uint32))

    def _all_step(
        self, state: State, batch: Batch, keys: Key[Array, "seeds"], now: Array
    ) -> State:
        params, moments, losses = jax.vmap(self._one_step, in_axes=(0, 0, 0, 0, None))(
            state.params, state.moments, Batch(*batch), keys, now
        )
        return State(params, moments, state.loss + losses)

    def _one_step(
        self, params: Any, moments: Any, batch: Batch, key: Key[Array, ""], now: Array
    ) -> tuple[Any, Any, Array]:
        """A restart's step."""
        # 0 was for the first values.
        key = jax.random.fold_in(key, now)

        def loss(params: Any) -> Array:
            logits = self._logits(params, batch.vectors, batch.mask, key)
            losses = optax.softmax_cross_entropy_with_integer_labels(
                logits, batch.labels
            )
            return jnp.sum(losses * batch.mask) / jnp.sum(batch.mask)

        value, gradients = jax.value_and_grad(loss)(params)
        updates, moments = self._optimizer.update(gradients, moments, params)
        return optax.apply_updates(params, updates), moments, value

    def _logits(
        self, params: Any, vectors: Any, mask: Any, key: Key[Array, ""] | None
    ) -> Float[Array, "batch words labels"]:
        logits = self._model.apply({"params": params}, vectors, mask, key)
        assert isinstance(logits, jax.Array)
        return logits

    def _best(self, params: Any, vectors: Array, mask: Array) -> Array:
        return jnp.argmax(self._logits(params, vectors, mask, None), axis=-1)

    def _batches(self, step: int) -> Iterator[Batch]:
        """Every restart's batches after so many steps, one beside the other."""
        split = self.splits["train"]
        for number in range(step, self.setting.epochs * self.steps_per_epoch):
            epoch, place = divmod(number, self.steps_per_epoch)
            if number == step or place == 0:
                size = self.setting.config.train.batch_size
                orders = [
                    order(split.lengths, size, epoch, seed)
                    for seed in self.setting.seeds
                ]
            chosen = np.stack([each[place] for each in orders])
            yield gather(split, self.setting.states, chosen)

    def answers(self, params: Any, split: Split) -> list[list[np.ndarray]]:
        """The labels of each sentence's words, by restart."""
        size = self.setting.config.evaluate.batch_size
        found: list[list[np.ndarray]] = [
            [np.empty(0)] * len(split.lengths) for _ in self.setting.seeds
        ]
        for rows in _cut(np.argsort(split.lengths, kind="stable"), size):
            batch = gather(split, self.setting.states, rows)
            best = np.asarray(self._answer(params, batch.vectors, batch.mask))
            for own, answers in zip(found, best, strict=True):
                for row, labels in zip(rows, answers, strict=True):
                    if row >= 0:
                        own[row] = labels[: split.lengths[row]]
        return found

    def _epoch(self, state: State) -> dict[str, Any]:
        """What is noted of an epoch."""
        losses = np.asarray(state.loss) / self.steps_per_epoch
        noted: dict[str, Any] = {"loss": losses.tolist()}
        for name, split in self.splits.items():
            if name != "train" and split.score is not None:
                answers = self.answers(state.params, split)
                noted[name] = [split.score(each) for each in answers]
        if self.setting.mixes:
            mix = state.params["mix"]
            noted["weights"] = np.asarray(jax.nn.softmax(mix["weights"])).tolist()
            noted["scale"] = np.asarray(mix["scale"]).tolist()
        return noted

    def _tell(self, name: str, noted: Mapping[str, Any], epoch: int) -> None:
        terminal.say(
            f"{name}: epoch {epoch} of {self.setting.epochs}, loss "
            f"{np.mean(noted['loss']):.4f}, dev {100 * np.mean(noted['dev']):.2f}"
        )

    def _save(
        self, place: Path, state: State, step: int, history: list, seconds: float
    ) -> None:
        about = json.dumps({"step": step, "epochs": history, "seconds": seconds})
        leaves = map(np.asarray, jax.tree.leaves(state))
        with temporary.file(place) as file:
            np.savez(file.buffer, *leaves, about=np.array(about))

    def _restore(self, place: Path) -> tuple[State, int, list, float]:
        state = self.init()
        if not place.exists():
            return state, 0, [], 0.0
        leaves, shape = jax.tree.flatten(state)
        text, found = kept.arrays(place, [leaf.shape for leaf in leaves])
        epochs = [feature_table.kind(self.setting, self.splits)]
        kind = {"step": int, "epochs": epochs, "seconds": float}
        about = kept.check(untrusted.parse(text, str(place)), kind, place)
        read = list(map(jnp.asarray, found))
        terminal.say(f"{place}: goes on after step {about['step']}")
        state = jax.tree.unflatten(shape, read)
        return state, about["step"], about["epochs"], about["seconds"]


def finish(taggers: Taggers, place: Path, name: str, data: Mapping) -> dict[str, Any]:
    """A finished choice's numbers: those in `place`'s folder, or of a training.

    Returns:
      As `Taggers.train`, and `kept`: they were there already.
    """
    path = place / f"{name}-{taggers.setting.fingerprint(data)}.json"
    state = path.with_suffix(".npz")
    known = path.exists()
    if not known:
        place.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(taggers.train(state, name)) + "\n")
    # Here, not only after the training: a process may be killed between the two.
    state.unlink(missing_ok=True)
    epoch = feature_table.kind(taggers.setting, taggers.splits)
    kind = {"epochs": (epoch,) * taggers.setting.epochs, "seconds": float}
    return {**kept.read(path, kind), "kept": known}


def order(
    lengths: Int[np.ndarray, "rows"], size: int, epoch: int, seed: int
) -> list[Int[np.ndarray, "size"]]:
    """The rows of each batch of an epoch, each row once; -1 fills the last one.

    Rows of like lengths stand together, which halves the padding. Which ones is drawn
    by the seed; the batches' order is drawn for the epoch alone, so that the batches of
    all seeds have the same lengths at the same step.
    """
    drawn = np.random.default_rng((seed, epoch)).permutation(len(lengths))
    kinds = [_padded(lengths[row]) for row in drawn]
    batches = _cut(drawn[np.argsort(kinds, kind="stable")], size)
    return [batches[i] for i in np.random.default_rng(epoch).permutation(len(batches))]


def _cut(rows: Int[np.ndarray, "rows"], size: int) -> list[Int[np.ndarray, "size"]]:
    full = np.concatenate([rows, np.full(-len(rows) % size, -1)])
    return list(full.reshape(-1, size))


def _padded(words: int | np.integer) -> int:
    """The length that a sentence is padded to: few lengths, few compilations."""
    return max(_SHORTEST, power_of_two([int(words)]))


def gather(
    split: Split, states: Sequence[int], rows: Int[np.ndarray, "*seeds batch"]
) -> Batch:
    """The words of some sentences, padded alike; -1: no sentence."""
    lengths = np.where(rows < 0, 0, split.lengths[rows])
    word = np.arange(_padded(lengths.max()))
    mask = word < lengths[..., None]
    words = np.where(mask, split.begins[rows][..., None] + word, 0)
    vectors = np.empty((*words.shape, len(states), split.vectors.shape[2]), np.float32)
    for place, state in enumerate(states):
        vectors[..., place, :] = split.vectors[state][words]
    vectors[~mask] = 0.0
    labels = np.where(mask, split.labels[words], 0)
    return Batch(vectors, mask.astype(np.int32), labels.astype(np.int32))
