"""The vectors of every word from all layers of a frozen BERT, kept on disk.

Each split has one file, `<split>-<fingerprint>.npy`: float32 [layers + 1, words,
hidden], which NumPy opens without reading it (`np.load(..., mmap_mode="r")`). The
fingerprint is of the weights and of what BERT reads, so other weights, words or
settings have another file.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.data.rows import Feature, Rows, padded_length
from bert_jax.pretrained import Bert
from bert_jax.runtime import terminal


class Reading(NamedTuple):
    """What BERT reads of a split, and which positions are the words' first pieces."""

    rows: Rows
    firsts: list[Int[np.ndarray, "words"]]  # positions in each row
    begins: Int[np.ndarray, "rows"]  # the number of each row's first word
    words: int
    limit: int  # the longest row may have so many tokens

    @classmethod
    def of(cls, features: Sequence[Feature], fill: dict[str, int], limit: int) -> Any:
        """The words of all features, in order.

        Args:
          features: `info` has the positions of the first piece of each word.
          fill: see `Rows`.
        """
        firsts = [np.asarray(feature.info) for feature in features]
        ends = np.cumsum([len(places) for places in firsts])
        begins = np.concatenate([[0], ends[:-1]])
        return cls(Rows(features, fill), firsts, begins, int(ends[-1]), limit)

    def path(self, folder: Path, split: str, weights: str, batch_size: int) -> Path:
        """The file of the vectors, by a hash of all that decides them, to the bit.

        Args:
          weights: see `weights_digest`.
        """
        digest = hashlib.sha256(f"2 {weights} {batch_size} {self.limit}".encode())
        for part in (*self.rows.ids(np.arange(len(self.rows))), *self.firsts):
            digest.update(np.asarray(part, np.int64).tobytes() + b"|")
        return folder / f"{split}-{digest.hexdigest()[:16]}.npy"


def weights_digest(bert: Bert) -> str:
    """A hash of the parameters that the hidden states depend on, and of the config."""
    digest = hashlib.sha256(repr(bert.config).encode())
    parts = {k: v for k, v in bert.params["bert"].items() if k != "pooler"}
    for path, leaf in jax.tree_util.tree_flatten_with_path(parts)[0]:
        digest.update(f"{jax.tree_util.keystr(path)}{leaf.shape}".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def keep(bert: Bert, split: str, reading: Reading, path: Path, batch_size: int) -> None:
    """Computes a split's vectors into `path`, unless they are there.

    Only the vectors of a batch are in memory.

    Raises:
      OSError: the folder cannot be written, or the disk is too small.
    """
    if path.exists():
        return
    shape = bert.config.num_hidden_layers + 1, reading.words, bert.config.hidden_size
    terminal.say(f"vectors of {split}: {4e-6 * np.prod(shape):,.0f} MB, {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    array = np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=shape)
    with part.open("r+b") as file:  # a full disk would kill a process that maps it
        os.posix_fallocate(file.fileno(), 0, part.stat().st_size)
    compute = _compute(bert)
    for indices in reading.rows.by_length(batch_size):
        places, words, batch = _batch(reading, indices)
        states = np.asarray(compute(bert.params, *batch, places))
        array[:, words] = states[:, : len(words)]
    array.flush()
    del array
    part.replace(path)


def _compute(bert: Bert) -> Callable[..., Float[Array, "states places hidden"]]:
    """A function that gives all hidden states of a batch at some of its positions."""

    @jax.jit
    def compute(
        params: Any, ids: Array, mask: Array, segments: Array, places: Array
    ) -> Array:
        states = bert.forward(params, ids, mask, segments)["hidden_states"]
        chosen = [state.reshape(-1, state.shape[-1])[places] for state in states]
        return jnp.stack(chosen).astype(jnp.float32)

    return compute


def _batch(
    reading: Reading, indices: Int[np.ndarray, "rows"]
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """The batch's words as places in it (padded with 0) and in the file, and inputs."""
    rows, limit = reading.rows, reading.limit
    length = rows.length(indices, limit)
    batch = rows.batch(indices, length)
    real = [index for index in indices if index < len(rows)]
    places = np.concatenate(
        [reading.firsts[index] + row * length for row, index in enumerate(real)]
    )
    words = np.concatenate(
        [reading.begins[i] + np.arange(len(reading.firsts[i])) for i in real]
    )
    # Few sizes, few compilations.
    most = padded_length(-(-len(places) // len(indices)), length) * len(indices)
    padded = np.zeros(most, np.int32)
    padded[: len(places)] = places
    inputs = tuple(batch[k] for k in ("input_ids", "input_mask", "segment_ids"))
    return padded, words, inputs
