"""The vectors of every word from all layers of a frozen BERT, kept on disk.

Each split has one file, `<split>-<fingerprint>.npy`: float32 [layers + 1, words,
hidden], which NumPy opens without reading it (`np.load(..., mmap_mode="r")`). The
fingerprint is of the weights and of what BERT reads, so other weights, words or
settings have another file. An unfinished file ends in `.part`, and a process that is
started again goes on with it.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.data.rows import Feature, Rows, padded_length
from bert_jax.errors import UserError
from bert_jax.pretrained import Bert
from bert_jax.runtime import temporary, terminal
from experiments.lib import kept

SAVE_SECONDS = 20.0  # between two notes of how far a file is, and lines about it
_ABOUT = {"batches": int, "seconds": float}  # of the note beside a file


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
        """The file of the vectors, by a hash of the weights and of all that decides
        them, to the bit.

        Args:
          weights: see `weights_digest`.
        """
        digest = hashlib.sha256(f"1 {weights} {batch_size} {self.limit}".encode())
        for index, places in enumerate(self.firsts):
            size = int(self.rows.lengths[index])
            row = self.rows.batch(np.array([index]), size)
            for part in (row["input_ids"], row["segment_ids"], places):
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

    A killed process loses at most SAVE_SECONDS. Only a batch's vectors are in memory.

    Raises:
      UserError: the disk has too little room.
      OSError: the folder cannot be written.
    """
    states = bert.config.num_hidden_layers + 1
    shape = (states, reading.words, bert.config.hidden_size)
    if _is_whole(path, shape):
        how, end = "from the cache,", " s saved"
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.naming(path):
            _fill(bert, split, reading, path, shape, batch_size)
        how, end = f"{4e-6 * np.prod(shape):,.0f} MB written in", " s"
    terminal.say(f"vectors of {split}: {how} {seconds(path):.1f}{end}")


def seconds(path: Path) -> float:
    """How long it took to compute a file; 0 where nothing tells."""
    about = path.with_suffix(".json")
    return kept.read(about, _ABOUT)["seconds"] if about.exists() else 0.0


def _is_whole(path: Path, shape: tuple[int, ...]) -> bool:
    """Whether there is such a file, of this shape."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        return False
    except (ValueError, EOFError):  # cut off, or not NumPy's
        array = None
    if array is not None and (array.shape, array.dtype) == (shape, np.float32):
        return True
    terminal.say(f"{path}: damaged; computing it again")
    return False


def _fill(
    bert: Bert,
    split: str,
    reading: Reading,
    path: Path,
    shape: tuple[int, ...],
    batch_size: int,
) -> None:
    """Computes the vectors into `path`, from where a killed process left off."""
    part, about = path.with_suffix(".part"), path.with_suffix(".json")
    for other in path.parent.glob(f"{split}-*.part"):
        if other != part:
            terminal.say(f"{other}: unfinished and of other settings; deleted")
            other.with_suffix(".json").unlink(missing_ok=True)
            other.unlink()
    done, before = _begun(part, about, shape)
    array = np.lib.format.open_memmap(part, mode="r+")
    compute = _compute(bert)
    batches = -(-len(reading.rows) // batch_size)
    started = saved = time.monotonic()
    for number, indices in enumerate(reading.rows.by_length(batch_size)):
        if number < done:
            continue
        places, words, batch = _batch(reading, indices)
        states = np.asarray(compute(bert.params, *batch, places))
        array[:, words] = states[:, : len(words)]
        now = time.monotonic()
        if now - saved >= SAVE_SECONDS:
            _note(array, about, number + 1, before + now - started)
            saved = now
            left = (now - started) / (number + 1 - done) * (batches - number - 1)
            place = f"batch {number + 1} of {batches}"
            terminal.say(f"vectors of {split}: {place}, {left:.0f} s left")
    _note(array, about, batches, before + time.monotonic() - started)
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


def _begun(part: Path, about: Path, shape: tuple[int, ...]) -> tuple[int, float]:
    """Batches that are in the unfinished file, and their seconds; makes a new one."""
    if part.exists() and about.exists():
        note = kept.read(about, _ABOUT)
        if note["batches"]:
            return note["batches"], note["seconds"]
    # First: a file is never noted fuller.
    kept.write(about, {"batches": 0, "seconds": 0.0})
    needed = 4 * int(np.prod(shape)) + 128  # NumPy's header
    room = shutil.disk_usage(part.parent).free
    if needed > room:
        raise UserError(
            f"{part.parent}: the vectors of all layers need {needed / 1e9:.2f} GB, and "
            f"{room / 1e9:.2f} GB are free; take another --output"
        )
    array = np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=shape)
    del array
    with part.open("r+b") as file:  # a full disk would kill a process that maps it
        os.posix_fallocate(file.fileno(), 0, part.stat().st_size)
    return 0, 0.0


def _note(array: np.memmap, about: Path, batches: int, seconds: float) -> None:
    array.flush()  # first: what is noted as done is on disk
    kept.write(about, {"batches": batches, "seconds": round(seconds, 3)})
